"""Queues that run the same no-op jobs on Redis: holdfast, Node's BullMQ, Python queues."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from redis.asyncio import Redis

from bench.worker import fill, ticks
from holdfast import Holdfast
from tests.servers import Valkey
from tests.wire.peer import NodeMissing, cache_folder, find_node, installed

HERE = Path(__file__).parent
PYTHON_PEERS = {"huey": 10, "dramatiq": 8, "arq": 100}
"""The concurrency at which each was fastest here."""
PACKAGES = ("huey", "redis", "hiredis", "dramatiq[redis]", "arq")
BATCH = 1000
WITHIN = 300.0


class Drain(msgspec.Struct, frozen=True):
    """Jobs per second, and the processor time of worker and server per job."""

    rate: float
    worker: float = 0.0
    server: float = 0.0


class Contestants:
    """One server and the queues that use it in turn."""

    def __init__(self, server: Valkey, count: int) -> None:
        self.server = server
        self.count = count
        self._raw = Redis(port=server.port)

    async def close(self) -> None:
        """Close the connection to the server."""
        await self._raw.aclose()

    async def empty(self) -> None:
        """Remove every job."""
        await self._raw.flushall()

    async def submit(self, prefix: str) -> float:
        """Submit with ``submit_batch``; return jobs per second."""
        async with Holdfast(f"{self.server.url}?prefix={prefix}") as app:
            began = time.perf_counter()
            await fill(app, "noop", self.count)
            return self.count / (time.perf_counter() - began)

    async def holdfast(self, prefix: str, slots: int) -> Drain:
        """Run all jobs with ``holdfast worker``, one process."""
        command = [sys.executable, "-m", "holdfast", "worker", "bench.site:app"]
        command += ["--slots", str(slots), "--log-level", "warning", "--no-supervisor"]
        url = f"{self.server.url}?prefix={prefix}"
        return await self._drain(prefix, command, Path.cwd(), {"HOLDFAST_URL": url})

    async def node(self, folder: Path, prefix: str, concurrency: int) -> Drain:
        """Run all jobs with a BullMQ worker in Node."""
        command = [str(find_node()[0]), "work.mjs"]
        command += [str(self.server.port), prefix, str(concurrency)]
        return await self._drain(prefix, command, folder, {})

    async def node_adds(self, folder: Path, prefix: str) -> float:
        """Submit with Node's ``addBulk``; return jobs per second."""
        command = [str(find_node()[0]), "add.mjs", str(self.server.port), prefix]
        command += [str(self.count), str(BATCH)]
        answer = await asyncio.to_thread(_answer, command, folder)
        return self.count / answer["seconds"]

    async def python(self, interpreter: str, name: str) -> Drain:
        """Submit and run jobs with another Python queue."""
        url = self.server.url.removesuffix("/0") + "/1"
        command = [interpreter, str(HERE / "peers" / "on_redis.py"), name, url, str(self.count)]
        answer = await asyncio.to_thread(_answer, [*command, str(PYTHON_PEERS[name])], HERE)
        assert answer["done"] >= self.count
        return Drain(self.count / answer["seconds"])

    async def _drain(
        self, prefix: str, command: list[str], folder: Path, more: dict[str, str]
    ) -> Drain:
        """Run a worker until all jobs are done; the times in the jobs give the duration."""
        worker = started(command, folder, more)
        try:
            already = await self._until_done(prefix, 1)
            before = self._seconds(worker), await self._server_seconds()
            await self._until_done(prefix, self.count)
            after = self._seconds(worker), await self._server_seconds()
        finally:
            worker.terminate()
            await asyncio.to_thread(worker.wait, 30)
        jobs = max(1, self.count - already)
        spent = [(end - begin) / jobs * 1e6 for begin, end in zip(before, after, strict=True)]
        return Drain(self.count / await self._span(prefix), *spent)

    async def _until_done(self, prefix: str, count: int) -> int:
        async with asyncio.timeout(WITHIN):
            while (done := await self._raw.zcard(f"{prefix}:default:completed")) < count:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)
        return int(done)

    def _seconds(self, process: subprocess.Popen[bytes]) -> float:
        return ticks(process.pid) / os.sysconf("SC_CLK_TCK")

    async def _span(self, prefix: str) -> float:
        """Return the seconds from the first job's start to the last one's end."""
        base, began, ended = f"{prefix}:default:", [], []
        ids = await self._raw.zrange(f"{base}completed", 0, -1)
        for first in range(0, len(ids), BATCH):
            pipe = self._raw.pipeline(transaction=False)
            for each in ids[first : first + BATCH]:
                pipe.hmget(base + each.decode(), "processedOn", "finishedOn")
            for start, end in await pipe.execute():
                began.append(int(start))
                ended.append(int(end))
        return (max(ended) - min(began)) / 1000

    async def _server_seconds(self) -> float:
        facts = await self._raw.info("cpu")
        return float(facts["used_cpu_user"] + facts["used_cpu_sys"])


def started(command: list[str], folder: Path, more: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker process."""
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **more})


def node_folder(*, install: bool) -> Path:
    """Return a folder with BullMQ and our Node programs; raise ``NodeMissing`` without either."""
    folder = cache_folder()
    find_node()
    if install:
        try:
            installed(folder)
        except (subprocess.SubprocessError, OSError) as error:
            raise NodeMissing(str(error)) from None
    elif not (folder / "node_modules" / "installed").exists():
        raise NodeMissing("BullMQ is not installed; the tests in tests/wire install it")
    for name in ("add.mjs", "work.mjs"):
        shutil.copyfile(HERE / "node" / name, folder / name)
    return folder


def _answer(command: list[str], folder: Path) -> dict[str, float]:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=plain, capture_output=True, text=True, check=False, timeout=WITHIN
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer
