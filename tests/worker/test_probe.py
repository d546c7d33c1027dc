"""The probe of a worker: live, ready and metrics, of one process and of several."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.errors import HoldfastError, ValidationError
from holdfast.operations.workers import workers
from holdfast.runtime.clock import ManualClock
from holdfast.worker.metrics import MOST_LABELS, WorkerMetrics, series
from holdfast.worker.probe import MOST_OPEN, SILENT_AFTER, Probe, read_address
from tests.processes import running
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

APP = """
from holdfast import Holdfast, PermanentError

app = Holdfast()


@app.task("greet")
async def greet() -> None: ...


@app.task("fail")
async def fail() -> None:
    raise PermanentError("no")


@app.task("again")
async def again() -> None:
    await app.submit("greet")
"""

DONE = 'holdfast_attempts_total{outcome="completed",queue="default",type="greet"} 3.0'

Answer = tuple[int, str]


async def fetched(port: int, target: str, method: str = "GET") -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The samples of a page by name and sorted labels, as prometheus-client's parser reads them."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


async def until_ready(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if (200, "ok\n") == await fetched(port, "/ready"):
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)  # another process starts


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--no-supervisor"], ["--processes", "2"]])
async def test_worker_serves_its_numbers(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP, "utf-8")
    url, port = f"sqlite:///{tmp_path}/jobs.db", free_port()
    command = [sys.executable, "-m", "holdfast", "worker", "shop:app", *flags]
    command += ["--probe", f"127.0.0.1:{port}"]
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "HOLDFAST_URL": url, "PYTHONPATH": paths}

    with running(command, cwd=tmp_path, env=env) as process:
        await until_ready(port)
        async with Holdfast(url) as app:
            jobs = [await app.submit(type_) for type_ in ("greet", "greet", "fail", "again")]
            for job in jobs:
                await app.wait(job.job_id, timeout=PATIENCE)
            await _until(app, "greet", 3)
        live, missing = await fetched(port, "/live"), await fetched(port, "/nothing")
        posted, headed = await fetched(port, "/live", "POST"), await fetched(port, "/live", "HEAD")
        status, page = await _numbers(port, DONE)
        process.send_signal(signal.SIGTERM)
        stopping = await asyncio.to_thread(process.wait, PATIENCE)

    assert (200, "ok\n") == live
    assert (404, 405, (200, "")) == (missing[0], posted[0], headed)
    assert (200, 0) == (status, stopping)
    found = samples(page)
    assert 3 == found["holdfast_attempts_total", "completed", "default", "greet"]
    assert 1 == found["holdfast_attempts_total", "failed", "default", "fail"]
    assert 1 == found["holdfast_submitted_total", "default", "greet"]
    assert 3 == found["holdfast_queue_wait_seconds_count", "default", "greet"]
    assert 3 == found["holdfast_attempt_duration_seconds_count", "default", "greet"]
    assert found[("holdfast_slots", "free")] > 0
    assert 0 <= found[("holdfast_loop_lag_seconds",)] < PATIENCE


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
async def test_supervised_processes_are_seen_and_drained(processes: int, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP, "utf-8")
    url, port = f"sqlite:///{tmp_path}/jobs.db", free_port()
    command = [sys.executable, "-m", "holdfast", "worker", "shop:app"]
    command += ["--processes", str(processes), "--probe", f"127.0.0.1:{port}"]
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "HOLDFAST_URL": url, "PYTHONPATH": paths}

    with running(command, cwd=tmp_path, env=env):
        await until_ready(port)
        seen = samples((await _numbers(port))[1])[("holdfast_worker_ticked_seconds",)]
        age = time.time() - seen
        async with Holdfast(url) as app:
            names = [each.id for each in await workers(app.store)]
            while len(names) < processes:
                await asyncio.sleep(0.1)  # another process starts
                names = [each.id for each in await workers(app.store)]
            for name in names:
                await app.drain(name)
            await _until_answer(port, (503, "drained\n"))
            await app.undrain(names[0])
            await until_ready(port)

    assert 0 <= age < SILENT_AFTER


async def _until_answer(port: int, wanted: Answer) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if wanted == await fetched(port, "/ready"):
                return
            await asyncio.sleep(0.1)  # the supervisor looks every few seconds


async def _until(app: Holdfast, type_: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if len((await app.search(types=[type_], states=["COMPLETED"])).jobs) >= count:
                return
            await asyncio.sleep(0.05)  # another process works


async def _numbers(port: int, counted: str = "") -> Answer:
    """The page, once the loop was looked at and a line is there: a job ends before it counts."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status, page = await fetched(port, "/metrics")
            if "holdfast_loop_lag_seconds " in page and counted in page:
                return status, page
            await asyncio.sleep(0.1)  # the worker looks once a second


async def test_silent_loop_is_not_alive_and_a_reason_not_ready() -> None:
    clock, reasons = ManualClock(), [""]
    series().ticked.set(clock.now().timestamp())
    probe = Probe(clock, lambda: reasons[0], several=False)
    async with probe.serving("127.0.0.1", 0) as port:
        alive = await fetched(port, "/live")
        clock.advance(SILENT_AFTER + 1)
        silent = await fetched(port, "/live")
        reasons[0] = "stopping"
        not_ready = await fetched(port, "/ready")

    assert (200, 503) == (alive[0], silent[0])
    assert "not seen for 16 s" in silent[1]
    assert (503, "stopping\n") == not_ready


async def test_probe_bounds_requests_and_connections() -> None:
    probe = Probe(ManualClock(), lambda: "", several=False)
    async with probe.serving("127.0.0.1", 0) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MOST_OPEN)]
        among_silent = await fetched(port, "/live")
        closed = [reader for reader, _ in idle if reader.at_eof() or reader.exception()]
        for _, line in idle:
            line.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live HTTP/1.1\r\nx: " + b"a" * 100_000)
        flooded = await reader.read()
        writer.close()
        after = await fetched(port, "/live")

    assert (200, 200, b"") == (among_silent[0], after[0], flooded)
    assert MOST_OPEN + 1 == len(closed)


async def test_port_in_use_is_an_error_of_one_line() -> None:
    probe = Probe(ManualClock(), lambda: "", several=False)
    async with probe.serving("127.0.0.1", 0) as port:
        with pytest.raises(HoldfastError, match=f"cannot listen on 127.0.0.1:{port} for the probe"):
            async with probe.serving("127.0.0.1", port):
                pytest.fail("both listen")


def test_names_beyond_the_limit_share_their_labels() -> None:
    metrics = WorkerMetrics()
    for number in range(MOST_LABELS + 50):
        metrics.emit("job.completed", queue="many", type=f"t{number}", seconds=0.1)

    page = series().attempts.collect()
    types = {s.labels["type"] for family in page for s in family.samples}

    assert len([name for name in types if re.fullmatch(r"t\d+", name)]) <= MOST_LABELS
    assert "other" in types


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("127.0.0.1:9091", ("127.0.0.1", 9091)),
        (":9091", ("127.0.0.1", 9091)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_address_of_a_probe_is_read(given: str, address: tuple[str, int]) -> None:
    assert address == read_address(given)


@pytest.mark.parametrize("given", ["9091", "host", "host:", "host:x", "host:70000", ""])
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="probe must be HOST:PORT"):
        read_address(given)
