"""Servers around a primary: replicas, a sentinel, and a proxy with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis import Redis

from tests.servers import ServerUnavailable, Valkey
from tests.waiting import in_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from ipaddress import IPv4Address
    from pathlib import Path

READY_WITHIN = 20.0
MASTER = "jobs"


class Replica(Valkey):
    """A replica of a primary, by its port or through a proxy."""

    def __init__(self, primary: int) -> None:
        super().__init__()
        self.follow(primary)

    def follow(self, primary: int) -> None:
        """Name the primary, before the start."""
        self.options = ["--replicaof", "127.0.0.1", str(primary)]

    def in_step(self) -> None:
        """Wait until it is connected to the primary."""
        until(lambda: self._link() == "up", "the replica did not connect")

    def _link(self) -> str:
        with Redis(port=self.port) as client:
            return str(client.info("replication")["master_link_status"])


class SentinelServer(Valkey):
    """One sentinel with a quorum of one and short timeouts."""

    def __init__(self, primary: int) -> None:
        super().__init__()
        self._primary = primary

    def _command(self) -> list[str | Path]:
        settings = self.root / "sentinel.conf"
        if not settings.exists():
            settings.write_text(
                f"bind 127.0.0.1\nport {self.port}\ndir {self.root}\n"
                f"sentinel monitor {MASTER} 127.0.0.1 {self._primary} 1\n"
                f"sentinel down-after-milliseconds {MASTER} 500\n"
                f"sentinel failover-timeout {MASTER} 3000\n"
            )
        return [self.binary, str(settings), "--sentinel"]

    def knows_a_replica(self) -> None:
        """Wait until a failover would find a replica."""

        def known() -> bool:
            with Redis(port=self.port) as client:
                return bool(client.execute_command("SENTINEL REPLICAS", MASTER))

        until(known, "the sentinel did not find the replica")


def until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition on another process is true."""
    try:
        in_time(condition, within=READY_WITHIN, every=0.05)
    except TimeoutError:
        raise ServerUnavailable(otherwise) from None


@contextlib.asynccontextmanager
async def behind_tls(port: int, folder: Path) -> AsyncIterator[int]:
    """Yield a port with TLS in front of a server, with our own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    relays: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(_relay(source, target))
            relays.add(task)
            task.add_done_callback(relays.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(relays):
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


async def _relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    target.close()


def make_certificates(folder: Path, address: IPv4Address) -> Path:
    """Make an authority and a server certificate for an address; return the authority's."""
    now = datetime.now(UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server")}
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in keys}
    for name, key in keys.items():
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(address)]), critical=False)
            .sign(keys["ca"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    return folder / "ca.pem"
