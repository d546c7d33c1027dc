"""POST /jobs, batches and idle subscribers, against the same framework without a store.

``python -m bench http [--quick]``; the server has one core, the clients another. Two figures per
run: the rate, which other load on the machine lowers, and the server's processor time per
request, which it hardly changes. All servers run at once and are called in turns.
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
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.effort import Effort
from tests import servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CALLERS = (32, 128)
"""Concurrent callers."""
BATCH = 1000
JOB = {"type": "bench", "payload": {"text": "x" * 1000}}


class Figures(NamedTuple):
    """The measurements of one run of one server."""

    rate: float
    """Requests per second."""
    p50: float
    """Median latency, in milliseconds."""
    p99: float
    """99th percentile of the latency, in milliseconds."""
    cost: float
    """Processor time of the server per request, in microseconds."""


class Caller(asyncio.Protocol):
    """One connection that repeats a request as soon as its response has arrived."""

    def __init__(self, request: bytes, until: float) -> None:
        self._request = request
        self._until = until
        self._received = b""
        self._sent = 0.0
        self.latencies: list[float] = []
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
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._received = body[length:]
        self.latencies.append(time.perf_counter() - self._sent)
        self.refused += not head.startswith((b"HTTP/1.1 201", b"HTTP/1.1 200"))
        if time.perf_counter() < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def request(path: str, body: object) -> bytes:
    """Return the bytes of one request."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


@contextlib.asynccontextmanager
async def served(mode: str, url: str = "") -> AsyncIterator[tuple[int, int]]:
    """Run a server and yield its port and process id."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.http_site", mode, url), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline()), process.pid
    finally:
        process.terminate()
        await process.wait()


async def load(port: int, pid: int, sent: bytes, connections: int, seconds: float) -> Figures:
    """Send a request over many connections for some time."""
    loop = asyncio.get_running_loop()
    started, before = time.perf_counter(), processor_time(pid)
    end = started + seconds
    callers = [
        (await loop.create_connection(lambda: Caller(sent, end), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(caller.done for caller in callers))
    used, duration = processor_time(pid) - before, time.perf_counter() - started
    latencies = sorted(one for caller in callers for one in caller.latencies)
    refused = sum(caller.refused for caller in callers)
    assert not refused, f"{refused} refused"
    return Figures(
        len(latencies) / duration,
        1000 * latencies[len(latencies) // 2],
        1000 * latencies[int(len(latencies) * 0.99)],
        1e6 * used / len(latencies),
    )


def processor_time(pid: int) -> float:
    """Return the processor time of all threads of a process, in seconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


@contextlib.contextmanager
def stores(folder: str | None) -> Iterator[dict[str, str]]:
    """Yield the URL of each measured store."""
    with tempfile.TemporaryDirectory(dir=folder) as here, servers.running_postgres() as server:
        yield {"sqlite": f"sqlite:///{here}/jobs.db", "postgres": server.dsn}


async def main(*, effort: Effort, folder: str | None) -> None:
    """Measure all servers in turns and print medians and ratios."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {os.cpu_count() - 1} if os.cpu_count() else {0})  # type: ignore[operator]
    seconds, rounds = effort.pick((1.0, 7), (0.5, 2), (0.1, 1))
    print(f"load {os.getloadavg()[0]:.1f}, payload 1 KB, {rounds} rounds of {seconds:g} s")
    runs: defaultdict[tuple[str, str], list[Figures]] = defaultdict(list)
    async with contextlib.AsyncExitStack() as stack:
        urls = stack.enter_context(stores(folder))
        processes = {name: await stack.enter_async_context(served(name)) for name in REFERENCES}
        for name, url in urls.items():
            processes[name] = await stack.enter_async_context(served("serve", url))
        for process in processes.values():
            await load(*process, ONE, CALLERS[-1], seconds / 2)
        for _ in range(rounds):
            for what, body, callers in LOADS:
                for name, process in processes.items():
                    if callers > 1 or name in urls:
                        runs[name, what].append(await load(*process, body, callers, seconds))
        _show({key: _median(rows) for key, rows in runs.items()}, list(urls))
        process = await stack.enter_async_context(served("serve", urls["sqlite"]))
        await _show_idle(*process, *effort.pick((2000, 5.0), (2000, 5.0), (20, 0.5)))


REFERENCES = ("bare", "usual", "checks")
ONE = request("/api/v1/jobs", JOB)
LOADS = [
    *[(f"{callers} callers", ONE, callers) for callers in CALLERS],
    ("one caller", ONE, 1),
    ("batches", request("/api/v1/jobs/batch", {"jobs": [JOB] * BATCH}), 1),
]


def _median(rows: list[Figures]) -> Figures:
    return Figures(*(statistics.median(column) for column in zip(*rows, strict=True)))


def _show(runs: dict[tuple[str, str], Figures], stores_: list[str]) -> None:
    print(f"{'':24} {'jobs/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'us/job':>8}")
    for (name, what), (rate, p50, p99, cost) in runs.items():
        jobs = BATCH if what == "batches" else 1
        line = f"{name:9} {what:14} {rate * jobs:8.0f} {p50:8.1f} {p99:8.1f} {cost / jobs:8.1f}"
        if what == "batches":
            alone = runs[name, "one caller"]
            line += f"  {rate * jobs / alone.rate:.1f} x one caller"
            line += f", by processor {alone.cost * jobs / cost:.1f} x"
        elif what != "one caller" and name != "bare":
            others = REFERENCES[:2] if name in stores_ else REFERENCES[:1]
            line += "  " + "; ".join(
                f"{rate / other.rate:.2f} of {base}, by processor {other.cost / cost:.2f}"
                for base in others
                if (other := runs[base, what])
            )
        print(line)


async def _show_idle(port: int, pid: int, count: int, seconds: float) -> None:
    """Print what many open event streams cost while nothing happens."""
    before = resident(pid)
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in streams:
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    for reader, _ in streams:
        await reader.readuntil(b": connected")
    growth, used = resident(pid) - before, processor_time(pid)
    await asyncio.sleep(seconds)
    share = (processor_time(pid) - used) / seconds
    print(f"{count} idle subscribers: {growth / count:.1f} KB each, {share:.1%} of a core")
    for _, writer in streams:
        writer.close()


def resident(pid: int) -> float:
    """Return the resident memory of a process, in KB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return float(status.split("VmRSS:")[1].split()[0])
