"""The process runner: isolation, interruption, and the same context as in other runners."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import FailureCategory, Holdfast, State
from tests.worker.rig import EventLog, appeared, ended, is_alive, until, working
from tests.worker.tasks import app as tasks

KILL_LATENCY = 1.0


@pytest.fixture
async def events() -> EventLog:
    return EventLog()


@pytest.fixture
async def app(events: EventLog) -> AsyncIterator[Holdfast]:
    async with working(tasks, observer=events, slots=4):
        yield tasks


@pytest.mark.req("A-17")
async def test_a_function_runs_in_a_process_of_its_own_and_returns_its_result(
    app: Holdfast,
) -> None:
    job = await app.submit("process.whoami")

    status = await app.wait(job.job_id, timeout=15)

    assert status.state is State.COMPLETED
    assert isinstance(status.output, dict)
    assert status.output["pid"] != os.getpid()
    assert status.output["pid"] == status.output["group"]
    assert status.output["parent"] == os.getpid()


@pytest.mark.req("L-5")
async def test_children_are_reused(app: Holdfast) -> None:
    pids = set()
    for _ in range(10):
        job = await app.submit("process.whoami")
        status = await app.wait(job.job_id, timeout=15)
        assert isinstance(status.output, dict)
        pids.add(status.output["pid"])

    assert 1 == len(pids)


async def test_a_child_inherits_no_open_file_but_its_socket(app: Holdfast, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w"):
        job = await app.submit("process.fds")
        status = await app.wait(job.job_id, timeout=15)

    assert isinstance(status.output, list)
    assert not any(str(tmp_path) in name for name in status.output)
    assert 1 == sum(name.startswith("socket:") for name in status.output)


@pytest.mark.req("A-18")
async def test_a_coroutine_function_runs_in_a_loop_of_its_own(app: Holdfast) -> None:
    job = await app.submit("process.coroutine", {"value": 7})

    status = await app.wait(job.job_id, timeout=15)

    assert {"value": 7, "restored": {"value": 7}} == status.output
    assert status.progress is not None
    assert (50, "half") == (status.progress.percent, status.progress.message)


@pytest.mark.req("L-5", "M-11")
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("exit", "code 3"),
        ("kill", "SIGKILL"),
    ],
)
async def test_a_child_that_dies_fails_only_its_own_job(app: Holdfast, how: str, says: str) -> None:
    neighbours = [await app.submit("process.echo", {"value": i}) for i in range(5)]
    job = await app.submit("process.die", {"how": how})
    later = [await app.submit("process.echo", {"value": i}) for i in range(5)]

    assert State.DEAD_LETTER is await ended(app, job.job_id)
    details = await app.failure(job.job_id)
    assert details.failure is not None
    assert FailureCategory.SYSTEM is details.failure.category
    assert "CHILD_DIED" == details.failure.code
    assert says in details.failure.message
    for each in neighbours + later:
        assert State.COMPLETED is await ended(app, each.job_id)


@pytest.mark.req("M-11")
async def test_a_child_that_dies_is_final_when_the_job_does_not_retry_crashes(
    app: Holdfast,
) -> None:
    job = await app.submit("process.die", {"how": "kill"}, retry_crashes=False, max_attempts=3)

    assert State.FAILED is await ended(app, job.job_id)
    status = await app.get(job.job_id)
    assert 1 == status.attempt
    assert status.failure is not None
    assert FailureCategory.SYSTEM is status.failure.category


@pytest.mark.req("L-5", "M-11")
async def test_a_memory_limit_stops_a_greedy_job_and_nothing_else(app: Holdfast) -> None:
    job = await app.submit("process.greedy")
    neighbour = await app.submit("process.echo", {"value": 1})

    assert State.DEAD_LETTER is await ended(app, job.job_id)
    details = await app.failure(job.job_id)
    assert details.failure is not None
    assert FailureCategory.SYSTEM is details.failure.category
    assert State.COMPLETED is await ended(app, neighbour.job_id)
    after = await app.submit("process.echo", {"value": 2})
    assert State.COMPLETED is await ended(app, after.job_id)


@pytest.mark.req("M-11")
@pytest.mark.parametrize(
    ("what", "category", "code", "state"),
    [
        ("temporary", FailureCategory.TEMPORARY, "LATER", State.DEAD_LETTER),
        ("permanent", FailureCategory.PERMANENT, "NEVER", State.FAILED),
        ("odd", FailureCategory.PERMANENT, "OddError", State.FAILED),
        ("plain", FailureCategory.TEMPORARY, "ValueError", State.DEAD_LETTER),
    ],
)
async def test_exceptions_are_classified_where_their_classes_are(
    app: Holdfast, what: str, category: FailureCategory, code: str, state: State
) -> None:
    job = await app.submit("process.raise", {"what": what})

    assert state is await ended(app, job.job_id)
    details = await app.failure(job.job_id)
    assert details.failure is not None
    assert (category, code) == (details.failure.category, details.failure.code)
    assert "tasks.py" in details.failure.stack_trace


@pytest.mark.req("A-18", "A-6", "M-8", "M-9")
async def test_the_context_of_a_child_reaches_the_store(app: Holdfast) -> None:
    job = await app.submit("process.context", {"value": 3})

    status = await app.wait(job.job_id, timeout=15)

    assert isinstance(status.output, dict)
    assert status.output["child"] == status.output["again"]
    assert "ValidationError" == status.output["refused"]
    assert "ValidationError" == status.output["wrong"]
    assert status.output["ahead"]
    child = await app.get(str(status.output["child"]))
    assert State.DELAYED is child.state
    assert status.progress is not None
    assert 40 == status.progress.percent
    (line,) = await app.logs(job.job_id)
    assert ("INFO", "hello", {"answer": "42"}) == (line.level, line.message, line.fields)
    (stored,) = await app.store.get([job.job_id])
    assert stored is not None
    assert (b'{"value":3}', b'{"value":4}') == (stored.checkpoint, stored.payload)


@pytest.mark.req("A-18", "M-9")
async def test_a_handler_in_a_child_waits_for_the_jobs_it_spawned(app: Holdfast) -> None:
    job = await app.submit("process.wait", max_attempts=1)

    status = await app.wait(job.job_id, timeout=15)

    assert (State.COMPLETED, [1, 2]) == (status.state, status.output)


@pytest.mark.req("A-18", "M-2", "M-9")
async def test_a_spawn_in_a_child_loses_nothing_that_it_was_given(app: Holdfast) -> None:
    job = await app.submit("process.spawn")

    status = await app.wait(job.job_id, timeout=15)

    assert isinstance(status.output, list)
    one, two, three, again, *wrong = status.output
    assert three == again
    assert ["task", "type"] == wrong
    found = [child for child in await app.store.get([one, two, three]) if child is not None]
    assert [1, 2, 3] == [json.loads(child.payload)["value"] for child in found]
    assert [3, 3, 1] == [child.priority for child in found]
    assert ["", "", job.job_id] == [child.idempotency_key for child in found]
    assert {timedelta(7)} == {child.backoff.max_delay for child in found}
    assert [{"a": "b"}] * 3 == [dict(child.tags) for child in found]
    assert {State.DELAYED} == {child.state for child in found}


@pytest.mark.req("M-9")
async def test_a_child_reads_the_results_it_waited_for(app: Holdfast) -> None:
    parents = [(await app.submit("process.echo", {"value": i})).job_id for i in (1, 2)]
    job = await app.submit("process.gather", depends_on=parents)

    status = await app.wait(job.job_id, timeout=15)

    assert [1, 2] == status.output


@pytest.mark.req("S-8", "L-5", "M-6")
@pytest.mark.parametrize("ignore_term", [False, True])
async def test_an_execution_timeout_kills_the_process(
    app: Holdfast, tmp_path: Path, ignore_term: bool
) -> None:
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    payload = {"started": str(started), "ignore_term": ignore_term, "cleaned": str(cleaned)}
    await ended(app, (await app.submit("process.echo")).job_id)

    job = await app.submit("process.spin", payload, timeout=0.5)

    pid = int(await appeared(started))
    assert State.DEAD_LETTER is await ended(app, job.job_id)
    assert not is_alive(pid)
    details = await app.failure(job.job_id)
    assert details.failure is not None
    assert FailureCategory.TIMEOUT is details.failure.category
    assert details.failure.duration_ms is not None
    assert details.failure.duration_ms / 1000 < 0.5 + KILL_LATENCY
    assert cleaned.exists() is not ignore_term


@pytest.mark.req("M-6")
async def test_the_end_of_the_lifetime_kills_the_process(app: Holdfast, tmp_path: Path) -> None:
    started = tmp_path / "started"
    await ended(app, (await app.submit("process.echo")).job_id)

    job = await app.submit("process.spin", {"started": str(started)}, lifetime=1)

    pid = int(await appeared(started))
    assert State.DEAD_LETTER is await ended(app, job.job_id)
    await until(lambda: not is_alive(pid))
    details = await app.failure(job.job_id)
    assert details.failure is not None
    assert "LIFETIME_EXCEEDED" == details.failure.code


@pytest.mark.req("A-12", "L-5")
async def test_a_forced_cancel_kills_the_process_and_what_it_started(
    app: Holdfast, tmp_path: Path
) -> None:
    job = await app.submit("process.family", {"started": str(tmp_path / "started")})
    grandchild = int(await appeared(tmp_path / "started"))
    requested = time.monotonic()

    await app.cancel(job.job_id, force=True)

    assert State.CANCELLED is await ended(app, job.job_id)
    assert time.monotonic() - requested < 2.0
    await until(lambda: not is_alive(grandchild), 1.0)


@pytest.mark.req("A-12")
async def test_a_request_to_cancel_reaches_a_computing_child_and_its_checkpoint_raises(
    app: Holdfast, tmp_path: Path
) -> None:
    job = await app.submit("process.polite", {"started": str(tmp_path / "started")})
    await appeared(tmp_path / "started")

    await app.cancel(job.job_id)

    assert State.CANCELLED is await ended(app, job.job_id)
    (stored,) = await app.store.get([job.job_id])
    assert stored is not None
    assert b'{"last":"words"}' == stored.checkpoint


@pytest.mark.req("S-8")
async def test_a_killed_child_is_replaced_ahead_of_need(
    app: Holdfast, events: EventLog, tmp_path: Path
) -> None:
    await events.wait_for("child.started")
    job = await app.submit("process.spin", {"started": str(tmp_path / "started")}, timeout=0.3)
    await ended(app, job.job_id)
    before = len(await events.wait_for("child.started", 2))

    await ended(app, (await app.submit("process.echo")).job_id)

    assert before == len(events.all("child.started"))


async def test_children_end_with_the_worker(tmp_path: Path) -> None:
    async with working(tasks, slots=2) as _:
        await tasks.submit("process.spin", {"started": str(tmp_path / "started")})
        pid = int(await appeared(tmp_path / "started"))

    assert not is_alive(pid)


async def test_a_task_that_a_new_process_cannot_find_is_named(events: EventLog) -> None:
    hidden = Holdfast("memory://")

    @hidden.task("process.hidden", runner="process", max_attempts=1)
    def nowhere() -> None: ...

    async with working(hidden, observer=events):
        job = await hidden.submit("process.hidden")
        assert State.DEAD_LETTER is await ended(hidden, job.job_id)
        details = await hidden.failure(job.job_id)

    assert details.failure is not None
    assert "HANDLER_NOT_FOUND" == details.failure.code


@pytest.mark.parametrize("type_", ["process.transaction", "process.transaction.coroutine"])
async def test_a_transaction_in_a_child_process_fails_the_job_once(
    app: Holdfast, type_: str
) -> None:
    job = await app.submit(type_)

    status = await app.wait(job.job_id, timeout=15)

    assert status.failure is not None
    assert (State.FAILED, FailureCategory.PERMANENT) == (status.state, status.failure.category)
    assert "not runner='process'" in status.failure.message
