"""Real processes on SQLite: killed, hung, drained, cancelled from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import FailureCategory, Holdfast, State
from holdfast.model.job import Event
from tests.worker.machines import Machines, children, worker_pids
from tests.worker.rig import appeared, ended, is_alive, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.clear()


@pytest.fixture
async def app(machines: Machines) -> AsyncIterator[Holdfast]:
    async with machines.app() as app:
        yield app


async def exited(process: subprocess.Popen[bytes], seconds: float = 20) -> int:
    return await asyncio.to_thread(process.wait, seconds)


async def crowd(app: Holdfast, count: int) -> dict[str, int]:
    """Wait until so many workers are present."""
    async with asyncio.timeout(20):
        while len(found := await worker_pids(app)) < count:  # noqa: ASYNC110  # other processes
            await asyncio.sleep(0.02)
    return found


async def test_supervised_processes_share_the_work_of_a_burst(
    machines: Machines, app: Holdfast
) -> None:
    jobs = [await app.submit("add", {"a": i, "b": 1}) for i in range(40)]

    supervisor = machines.start("supervisor", processes=2, burst=True)

    assert 0 == await exited(supervisor)
    for i, job in enumerate(jobs):
        assert i + 1 == (await app.get(job.job_id)).output


@pytest.mark.req("S-6", "S-10")
async def test_the_jobs_of_a_killed_process_run_again_within_a_second(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("supervisor", processes=2)
    await crowd(app, 2)
    job = await app.submit("hold", {"started": machines.file("started")}, lease=30)
    victim = int(await appeared(Path(machines.file("started"))))
    killed = time.monotonic()

    os.kill(victim, signal.SIGKILL)

    status = await app.wait(job.job_id, timeout=10)
    assert time.monotonic() - killed < 1.0
    assert (State.COMPLETED, 2) == (status.state, status.attempt)
    assert victim != status.output
    (history,) = await app.store.history([job.job_id])
    lapse = next(edge for edge in history if edge.event is Event.LAPSE)
    assert f"worker process {victim} was killed by SIGKILL" == lapse.reason
    await until(lambda: not is_alive(victim))


@pytest.mark.req("S-6")
async def test_the_jobs_of_a_killed_lone_worker_run_again_after_their_lease(
    machines: Machines, app: Holdfast
) -> None:
    first = machines.start("alone")
    job = await app.submit("hold", {"started": machines.file("started")}, lease=2)
    await appeared(Path(machines.file("started")))
    machines.start("alone")
    await crowd(app, 2)
    killed = time.monotonic()

    first.kill()

    status = await app.wait(job.job_id, timeout=20)
    assert time.monotonic() - killed < 2 + 5
    assert (State.COMPLETED, 2) == (status.state, status.attempt)


@pytest.mark.req("S-8", "M-6")
async def test_a_process_whose_loop_a_coroutine_blocks_for_good_is_replaced(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("supervisor", processes=1)
    (victim,) = (await crowd(app, 1)).values()

    blocking = await app.submit("block", {"seconds": 50.0}, timeout=0.5, max_attempts=1)
    await until(lambda: not is_alive(victim), 20)
    other = await app.submit("add", {"a": 1, "b": 1})

    assert State.COMPLETED is await ended(app, other.job_id)
    assert State.DEAD_LETTER is await ended(app, blocking.job_id)
    failure = (await app.failure(blocking.job_id)).failure
    assert failure is not None
    assert FailureCategory.TIMEOUT is failure.category


@pytest.mark.req("S-10", "M-11", "L-6")
async def test_a_job_that_kills_its_worker_ends_dead_and_its_neighbours_are_unharmed(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("supervisor", processes=2)
    await crowd(app, 2)
    neighbours = [await app.submit("add", {"a": 1, "b": 1}) for _ in range(5)]
    poison = await app.submit("poison")
    neighbours += [await app.submit("add", {"a": 1, "b": 1}) for _ in range(5)]

    assert State.DEAD_LETTER is await ended(app, poison.job_id, 30)
    details = await app.failure(poison.job_id)
    assert 3 == details.total_attempts
    assert details.failure is not None
    assert FailureCategory.SYSTEM is details.failure.category
    for job in neighbours:
        assert State.COMPLETED is await ended(app, job.job_id)


@pytest.mark.req("S-7")
async def test_a_coroutine_that_blocks_its_loop_keeps_its_lease(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("alone")
    machines.start("alone")
    await crowd(app, 2)
    job = await app.submit("block", {"seconds": 5.0}, lease=1.5)

    status = await app.wait(job.job_id, timeout=20)

    assert (State.COMPLETED, 1) == (status.state, status.attempt)


@pytest.mark.req("S-7")
async def test_a_call_that_stops_every_thread_of_its_process_keeps_its_lease(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("supervisor", processes=2)
    await crowd(app, 2)
    job = await app.submit("seize", {"seconds": 4.0}, lease=0.8)

    status = await app.wait(job.job_id, timeout=20)

    assert (State.COMPLETED, 1) == (status.state, status.attempt)


@pytest.mark.req("S-7", "L-6")
async def test_the_supervisor_does_not_renew_the_leases_of_a_hung_process_for_ever(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("supervisor", processes=2)
    await crowd(app, 2)

    job = await app.submit("seize", {"seconds": 60}, lease=0.5, timeout=1, max_attempts=1)

    assert State.DEAD_LETTER is await ended(app, job.job_id, 30)


async def test_a_first_signal_drains_every_process(machines: Machines, app: Holdfast) -> None:
    supervisor = machines.start("supervisor", processes=2)
    await crowd(app, 2)
    job = await app.submit("wait", {"started": machines.file("started"), "seconds": 1.0})
    await appeared(Path(machines.file("started")))

    for pid in (supervisor.pid, *children(supervisor.pid)):  # as a terminal does
        with contextlib.suppress(ProcessLookupError):  # one that was idle may have ended by now
            os.kill(pid, signal.SIGTERM)

    assert 0 == await exited(supervisor)
    assert State.COMPLETED is (await app.get(job.job_id)).state
    assert {} == await worker_pids(app)


@pytest.mark.req("S-10")
async def test_a_second_signal_returns_running_jobs_at_once(
    machines: Machines, app: Holdfast
) -> None:
    supervisor = machines.start("supervisor", processes=2, grace=60)
    await crowd(app, 2)
    job = await app.submit("wait", {"started": machines.file("started"), "seconds": 60})
    await appeared(Path(machines.file("started")))
    supervisor.send_signal(signal.SIGINT)
    await asyncio.sleep(0.3)  # nothing tells that it goes on
    assert supervisor.poll() is None
    began = time.monotonic()

    supervisor.send_signal(signal.SIGINT)

    assert 0 == await exited(supervisor)
    assert time.monotonic() - began < 3
    status = await app.get(job.job_id)
    assert (State.SCHEDULED, 0) == (status.state, status.attempt)


async def test_signals_stop_a_lone_worker_the_same_way(machines: Machines, app: Holdfast) -> None:
    worker = machines.start("alone")
    await crowd(app, 1)
    job = await app.submit("wait", {"started": machines.file("started"), "seconds": 60})
    await appeared(Path(machines.file("started")))

    worker.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)  # until it has taken the first one
    worker.send_signal(signal.SIGTERM)

    assert 0 == await exited(worker)
    status = await app.get(job.job_id)
    assert (State.SCHEDULED, 0) == (status.state, status.attempt)


async def test_processes_exit_when_their_supervisor_is_gone(
    machines: Machines, app: Holdfast
) -> None:
    supervisor = machines.start("supervisor", processes=2)
    await crowd(app, 2)
    orphans = children(supervisor.pid)

    supervisor.kill()

    await until(lambda: not any(map(is_alive, orphans)))


async def test_an_app_that_cannot_be_loaded_ends_the_supervisor(machines: Machines) -> None:
    supervisor = machines.start("supervisor", processes=2, app="tests.worker.site:nothing")

    assert 0 != await exited(supervisor)


@pytest.mark.req("A-12", "A-11")
@pytest.mark.parametrize("type_", ["wait", "thread.spin", "process.spin"])
async def test_a_forced_cancel_from_another_process_stops_the_job_within_two_seconds(
    machines: Machines, app: Holdfast, type_: str
) -> None:
    machines.start("alone")
    payload = {"started": machines.file("started")}
    job = await app.submit(type_, payload | ({"seconds": 60} if type_ == "wait" else {}))
    pid = int(await appeared(Path(machines.file("started"))))
    requested = time.monotonic()

    await app.cancel(job.job_id, force=True)

    assert State.CANCELLED is await ended(app, job.job_id)
    assert time.monotonic() - requested < 2.0
    assert is_alive(pid) is (type_ != "process.spin")


@pytest.mark.req("L-5")
async def test_the_child_processes_of_a_killed_worker_end_with_it(
    machines: Machines, app: Holdfast
) -> None:
    worker = machines.start("alone")
    await app.submit("process.spin", {"started": machines.file("started")})
    pid = int(await appeared(Path(machines.file("started"))))

    worker.kill()

    await until(lambda: not is_alive(pid))


@pytest.mark.req("S-9")
async def test_a_locked_file_delays_results_but_loses_none(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("alone")
    await crowd(app, 1)
    job = await app.submit("wait", {"started": machines.file("started"), "seconds": 0.3}, lease=30)
    await appeared(Path(machines.file("started")))
    lock = sqlite3.connect(machines.place / "jobs.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    await asyncio.sleep(1.5)  # longer than the job takes: its result waits for the lock
    lock.execute("ROLLBACK")
    lock.close()

    status = await app.wait(job.job_id, timeout=20)

    assert (State.COMPLETED, 1) == (status.state, status.attempt)
