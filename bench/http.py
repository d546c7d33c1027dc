"""POST /jobs against the same framework answering without storing, and batches of 100.

One server process on one core, the clients on another: rates only mean something as ratios
within one run. ``python -m bench http [--quick]``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from tests import servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CONNECTIONS = 32
BATCH = 100
ROUNDS = 3
JOB = {"type": "bench", "payload": {"text": "x" * 1000}}


class Caller(asyncio.Protocol):
    """One connection that sends the same request again as soon as it is answered."""

    def __init__(self, request: bytes, until: float) -> None:
        self._request = request
        self._until = until
        self._heard = b""
        self._sent = 0.0
        self.took: list[float] = []
        self.refused = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, found, body = self._heard.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._heard = body[length:]
        self.took.append(time.perf_counter() - self._sent)
        self.refused += not head.startswith((b"HTTP/1.1 201", b"HTTP/1.1 200"))
        if time.perf_counter() < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def request(path: str, body: object) -> bytes:
    """Write one request."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


@contextlib.asynccontextmanager
async def served(mode: str, url: str = "") -> AsyncIterator[int]:
    """Run a server and yield its port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.http_site", mode, url), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()


async def load(port: int, what: bytes, seconds: float) -> tuple[float, float, float]:
    """Call for a while; requests per second, median and 99th percentile in milliseconds."""
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    callers = [
        (await loop.create_connection(lambda: Caller(what, begun + seconds), "127.0.0.1", port))[1]
        for _ in range(CONNECTIONS)
    ]
    await asyncio.gather(*(caller.done for caller in callers))
    took = sorted(one for caller in callers for one in caller.took)
    refused = sum(caller.refused for caller in callers)
    assert not refused, f"{refused} refused"
    rate = len(took) / (time.perf_counter() - begun)
    return rate, 1000 * took[len(took) // 2], 1000 * took[int(len(took) * 0.99)]


async def measured(mode: str, url: str, what: bytes, seconds: float) -> tuple[float, float, float]:
    """Start a server, warm it up, measure it."""
    async with served(mode, url) as port:
        await asyncio.sleep(1.0)
        await load(port, what, seconds / 4)
        return await load(port, what, seconds)


@contextlib.contextmanager
def stores(folder: str | None) -> Iterator[dict[str, str]]:
    """Yield a place in each store that is measured."""
    with tempfile.TemporaryDirectory(dir=folder) as here, servers.running_postgres() as server:
        yield {"sqlite": f"sqlite:///{here}/jobs.db", "postgres": server.dsn}


async def main(*, quick: bool, folder: str | None) -> None:
    """Measure everything in turns and print medians and ratios."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {os.cpu_count() - 1} if os.cpu_count() else {0})  # type: ignore[operator]
    seconds, rounds = (1.0, 1) if quick else (4.0, ROUNDS)
    one, many = request("/api/v1/jobs", JOB), request("/api/v1/jobs/batch", {"jobs": [JOB] * BATCH})
    print(
        f"load {os.getloadavg()[0]:.1f}, {CONNECTIONS} connections, payload 1 KB, {rounds} rounds"
    )
    found: dict[str, list[tuple[float, float, float]]] = {}
    with stores(folder) as places:
        for _ in range(rounds):
            found.setdefault("bare", []).append(await measured("bare", "", one, seconds))
            for name, url in places.items():
                found.setdefault(name, []).append(await measured("serve", url, one, seconds))
                batches = await measured("serve", url, many, seconds)
                found.setdefault(f"{name} batch", []).append(batches)
    _show(found)


def _show(found: dict[str, list[tuple[float, float, float]]]) -> None:
    middle = {
        name: tuple(statistics.median(column) for column in zip(*rows, strict=True))
        for name, rows in found.items()
    }
    for name, (rate, half, most) in middle.items():
        jobs = rate * BATCH if "batch" in name else rate
        against = f"{rate / middle['bare'][0]:.2f} of bare"
        if "batch" in name:
            against = f"{jobs / middle[name.removesuffix(' batch')][0]:.1f} x single"
        print(f"{name:16} {jobs:9.0f} jobs/s  p50 {half:7.1f} ms  p99 {most:7.1f} ms  {against}")
