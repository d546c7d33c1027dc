"""What a connection may take without a key: raw sockets against the running server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.http.connections import network
from holdfast.http.rejections import Rejections
from holdfast.http.server import ListenAddress, beside
from holdfast.model.policy import ConnectionLimits
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore
from tests.certificates import Authority
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GET = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
JOB = b'{"type": "a", "payload": 1}'


class Line:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def status(self) -> int:
        """Read one response; 0 when the connection ends."""
        try:
            async with asyncio.timeout(10):
                head = await self.reader.readuntil(b"\r\n\r\n")
                self.head = head.decode().lower()
                length = self.head.partition("content-length: ")[2].partition("\r")[0]
                self.body = await self.reader.readexactly(int(length or 0))
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        return int(head.split()[1])

    async def flood(self) -> None:
        """Send 600 MiB."""
        for _ in range(10_000):
            self.send(b"a" * 65_536)
            await self.writer.drain()

    async def ended(self) -> bool:
        """Wait until the server closes the connection, without another byte."""
        async with asyncio.timeout(10):
            try:
                return b"" == await self.reader.read(1)
            except ConnectionError:
                return True


class Door:
    """The address of a server, and the lines to it."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rpartition(":")[2])
        self.lines: list[Line] = []

    async def line(self, data: bytes = b"") -> Line:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
        self.lines.append(line)
        line.send(data)
        return line

    async def status(self, data: bytes = GET) -> int:
        return await (await self.line(data)).status()

    async def metric(self, name: str) -> float:
        line = await self.line(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert 200 == await line.status()
        for one in line.body.decode().splitlines():
            if one.startswith(f"{name} "):
                return float(one.rpartition(" ")[2])
        return 0.0


@contextlib.asynccontextmanager
async def serving(proxies: tuple[str, ...] = (), **given: Any) -> AsyncIterator[Door]:
    tls = {name: value for name, value in given.items() if name.startswith("certificate")}
    limits = {name: value for name, value in given.items() if name not in tls}
    place = ListenAddress(
        port=0,
        proxies=proxies,
        behind_proxy=bool(proxies),
        **tls,
        limits=msgspec.convert(
            {n: timedelta(seconds=v) if "timeout" in n else v for n, v in limits.items()},
            ConnectionLimits,
        ),
    )
    async with beside(Holdfast(store=MemoryStore()), place) as address:
        door = Door(address)
        try:
            yield door
        finally:
            for line in door.lines:
                line.writer.close()


async def test_headers_without_end_are_refused_after_the_limit() -> None:
    async with serving() as door:
        many = await door.line(GET[:-2] + b"x: y\r\n" * 101 + b"\r\n")
        long = await door.line(GET[:-2] + b"x: " + b"y" * 40_000)
        trickled = await door.line(GET[:-2])
        for _ in range(40):
            trickled.send(b"x: " + b"y" * 1000 + b"\r\n")
            await asyncio.sleep(0)  # in several reads
        target = await door.line(b"GET /" + b"a" * 20_000)

        assert [431, 431, 431, 414] == [
            await line.status() for line in (many, long, trickled, target)
        ]
        assert b"HEADERS_TOO_LARGE" in trickled.body
        assert await trickled.ended()
        assert 2 == await door.metric('holdfast_http_refused_total{reason="header bytes"}')
        assert 200 == await door.status()


async def test_silent_and_half_sent_connections_are_closed() -> None:
    async with serving(header_timeout=0.2) as door:
        silent, half, blank = (
            await door.line(),
            await door.line(GET[:20]),
            await door.line(b"\r\n"),
        )
        kept = await door.line(GET)
        assert 200 == await kept.status()
        kept.send(GET[:20])

        assert await silent.ended()
        assert [408, 408, 408] == [await line.status() for line in (half, blank, kept)]
        assert await half.ended()
        assert 1 == await door.metric('holdfast_http_refused_total{reason="silence"}')


async def test_headers_that_trickle_do_not_move_their_deadline() -> None:
    async with serving(header_timeout=0.4) as door:
        line = await door.line(GET[:-2])

        async def trickle() -> None:
            while True:
                line.send(b"x: y\r\n")
                await asyncio.sleep(0.05)  # slowly, as the attack is

        trickling = asyncio.create_task(trickle())
        assert 408 == await line.status()
        trickling.cancel()


async def test_idle_connections_are_closed() -> None:
    async with serving(idle_timeout=0.2) as door:
        line = await door.line(GET)

        assert 200 == await line.status()
        assert await line.ended()


@pytest.mark.parametrize("length", [b"content-length: 100", b"transfer-encoding: chunked"])
async def test_body_that_trickles_is_refused(length: bytes) -> None:
    async with serving(body_timeout=0.2) as door:
        line = await door.line(POST + length + b"\r\n\r\n1\r\n")
        ignored = await door.line(GET[:-2] + length + b"\r\n\r\n")

        assert 200 == await ignored.status()
        assert await ignored.ended()
        assert await line.status() in (408, 0)


async def test_full_server_closes_the_connection_that_waits_longest() -> None:
    async with serving(connections=20) as door:
        silent = [await door.line() for _ in range(30)]

        assert [200] * 5 == [await door.status() for _ in range(5)]
        assert all([await line.ended() for line in silent[:10]])
        assert 20 >= await door.metric("holdfast_http_connections")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_half_sent_headers_that_make_room_are_closed_at_once() -> None:
    async with serving(connections=20) as door:
        before = descriptors()

        for _ in range(60):
            half = await door.line(GET[:20])
            half.writer.transport.pause_reading()
            await asyncio.sleep(0.01)  # no sign shows that the server has read half a head

        # each has a descriptor on the client's side, and 20 have one on the server's
        assert 60 + 20 + 5 >= descriptors() - before


async def test_refused_client_that_sends_on_and_on_is_cut_off() -> None:
    head = POST + b"content-length: 999999999999\r\n\r\n"
    async with serving() as door:
        line = await door.line(head)
        assert 413 == await line.status()

        async with asyncio.timeout(9):
            with pytest.raises(ConnectionError):
                await line.flood()

        assert 1 == await door.metric('holdfast_http_refused_total{reason="drained bytes"}')


async def test_address_with_too_many_connections_loses_its_own_oldest() -> None:
    async with serving(connections_per_address=5) as door:
        lines = [await door.line() for _ in range(9)]

        assert 200 == await door.status()
        assert all([await line.ended() for line in lines[:4]])
        reason = "connections of one address"
        assert 5 <= await door.metric(f'holdfast_http_refused_total{{reason="{reason}"}}')


async def test_connection_is_refused_while_all_others_are_at_work() -> None:
    stream = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with serving(connections=3) as door:
        for _ in range(3):
            line = await door.line(stream)
            await line.reader.readuntil(b": connected")

        late = await door.line(GET)

        assert 503 == await late.status()
        assert "retry-after" in late.head


async def test_addresses_count_as_networks() -> None:
    assert "10.0.0.1" == network("10.0.0.1")
    assert "10.0.0.1" == network("::ffff:10.0.0.1")
    assert network("2001:db8::1%eth0") == network("2001:db8::2") == "2001:db8::/64"
    assert network("2001:db8:0:1::1") != network("2001:db8::1")
    assert "unknown" == network("unknown")


async def test_requests_of_an_address_behind_a_named_proxy_are_bounded() -> None:
    stream = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: %s\r\n\r\n"
    async with serving(("127.0.0.1",), connections_per_address=2) as door:
        for _ in range(2):
            line = await door.line(stream % b"203.0.113.7")
            await line.reader.readuntil(b": connected")

        again = await door.status(stream % b"203.0.113.7")
        other = await door.status(GET[:-2] + b"x-forwarded-for: 203.0.113.8\r\n\r\n")

        assert (503, 200) == (again, other)


async def test_pipelined_requests_are_served_in_order_one_at_a_time() -> None:
    ask = b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n"
    body = POST + b"content-length: %d\r\n\r\n" % len(JOB) + JOB
    async with serving() as door:
        line = await door.line(GET + body + ask % b"docs" + ask % b"nothing" + GET)

        assert [200, 201, 200, 404, 200] == [await line.status() for _ in range(5)]


async def test_pipelined_bytes_are_bounded() -> None:
    async with serving() as door:
        line = await door.line(GET * 2000)
        assert 200 == await line.status()
        assert await door.metric('holdfast_http_refused_total{reason="pipelined bytes"}')
        behind = await door.line(
            POST + b"transfer-encoding: chunked\r\n\r\n1b\r\n" + JOB + b"\r\n0\r\n\r\n" + GET
        )

        assert await behind.status() in (201, 400)
        assert await behind.ended()


async def test_head_that_is_cut_anywhere_is_read() -> None:
    message = POST + b"content-length: %d\r\n\r\n" % len(JOB) + JOB + GET
    async with serving() as door:
        for cut in range(1, len(message)):
            line = await door.line(message[:cut])
            await asyncio.sleep(0)  # in two reads
            line.send(message[cut:])
            assert [201, 200] == [await line.status(), await line.status()], cut
            line.writer.close()


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", 400),
        (POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef", 400),
        (POST + b"content-length: 5, 6\r\n\r\nabcdef", 400),
        (POST + b"content-length: +5\r\n\r\nabcde", 400),
        (POST + b"content-length: -5\r\n\r\nabcde", 400),
        (POST + b"content-length: 0x5\r\n\r\nabcde", 400),
        (POST + b"content-length : 5\r\n\r\nabcde", 400),
        (POST + b"content-length: 99999999999999999999999\r\n\r\n", 400),
        (POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        (POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"transfer-encoding: chunked\r\n\r\n-1\r\n", 400),
        (POST + b"transfer-encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n", 400),
        (GET[:-2] + b" folded: x\r\n\r\n", 400),
        (GET[:-2] + b"na me: x\r\n\r\n", 400),
        (GET[:-2] + b"x: a\x00b\r\n\r\n", 400),
        (GET[:-2] + b"x: a\nhost: b\r\n\r\n", 400),
        (GET[:-2] + b"host: other\r\n\r\n", 400),
        (GET.replace(b"host: localhost\r\n", b""), 400),
        (b"GET /health/live HTTP/1.0\r\n\r\n", 200),
        (b"GET /api/v1/jobs HTTP/1.0\r\n\r\n", 421),
        (b"GET /health/live HTTP/3.7\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /health/live\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"nonsense\r\n\r\n", 400),
        (GET[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n", 200),
        (GET[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n", 200),
    ],
    ids=lambda one: one[-60:].decode("latin-1") if isinstance(one, bytes) else "",
)
async def test_ambiguous_and_foreign_messages(message: bytes, status: int) -> None:
    async with serving() as door:
        line = await door.line(message)

        assert status == await line.status()
        if status == 400:
            assert await line.ended()
            assert 0 == await _jobs(door)


async def _jobs(door: Door) -> int:
    line = await door.line(b"GET /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert 200 == await line.status()
    return int(line.body.partition(b'"total_count":')[2].partition(b",")[0].strip(b"}"))


async def test_continue_is_sent_only_to_a_caller_whose_body_is_read() -> None:
    expect = b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(JOB)
    async with serving() as door:
        good = await door.line(POST + expect)
        refused = await door.line(POST.replace(b"localhost", b"elsewhere") + expect)

        assert 100 == await good.status()
        good.send(JOB)
        assert (201, 421) == (await good.status(), await refused.status())


async def test_response_that_is_not_read_is_dropped() -> None:
    ask = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with serving(write_timeout=0.3) as door:
        line = await door.line(ask * 100)
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of sockets

        name = 'holdfast_http_refused_total{reason="response not read"}'
        assert await eventually(lambda: door.metric(name))


async def test_silent_tls_handshakes_end_and_count_as_connections(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.certificate("127.0.0.1")
    certificates = {"certificate": str(files.chain), "certificate_key": str(files.key)}
    context = ssl.create_default_context(cafile=str(authority.file))
    async with serving(connections=5, header_timeout=1, **certificates) as door:
        silent = [await door.line() for _ in range(8)]

        assert all([await line.ended() for line in silent[:3]])
        line = Line(*await asyncio.open_connection("127.0.0.1", door.port, ssl=context))
        door.lines.append(line)
        line.send(GET)
        assert 200 == await line.status()
        assert all([await line.ended() for line in silent])


async def test_connections_that_clients_close_leave_their_places() -> None:
    async with serving(connections=5) as door:
        for _ in range(20):
            line = await door.line(GET)
            assert 200 == await line.status()
            line.writer.close()
            await line.writer.wait_closed()

        assert 2 >= await door.metric("holdfast_http_connections")
        assert 0 == await door.metric('holdfast_http_refused_total{reason="connections"}')


async def test_refusals_are_logged_in_sums() -> None:
    clock, seen = ManualClock(), Recorded()
    rejections = Rejections(clock, seen)
    for _ in range(1000):
        rejections.add("silence", "10.0.0.1")
    clock.advance(timedelta(seconds=11))
    rejections.flush()
    rejections.flush()

    assert {"silence": 1000} == rejections.counts
    assert [("http.refused", 1, "10.0.0.1"), ("http.refused", 999, "several")] == seen.lines


class Recorded:
    """Keeps events."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, object, object]] = []

    def emit(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields["count"], fields["address"]))
