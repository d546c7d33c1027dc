"""Middleware: around submissions and attempts, where the handler runs, in every runner."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast import (
    AttemptCall,
    AttemptOutcome,
    Holdfast,
    JobContext,
    Middleware,
    State,
    Submission,
    TemporaryError,
    ValidationError,
    Worker,
    current_job,
)
from holdfast.errors import Fault
from holdfast.maintenance.cron import CronService
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore
from tests.worker.rig import appeared, ended, until, until_running, working
from tests.worker.seam_tasks import app as tasks

pytestmark = pytest.mark.req("E-2")

RUNNERS = ("seam.async", "seam.thread", "seam.process", "seam.process.async")


@pytest.fixture
async def app() -> AsyncIterator[Holdfast]:
    async with working(tasks, slots=4):
        yield tasks


async def lines(path: Path, count: int) -> list[str]:
    await until(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    return path.read_text().splitlines()  # noqa: ASYNC240  # a few bytes


@pytest.mark.parametrize("type_", RUNNERS)
async def test_attempts_run_inside_the_middleware_in_the_place_of_the_handler(
    app: Holdfast, type_: str, tmp_path: Path
) -> None:
    path = tmp_path / "record"
    job = await app.submit(type_, headers={"record": str(path)})

    status = await app.wait(job.job_id, timeout=15)

    assert isinstance(status.output, dict)
    where = status.output["place"]
    assert ("outer", "inner") == (status.output["outer"], status.output["inner"])
    assert [
        f"outer enters {where}",
        "inner enters",
        "inner sees nothing",
        "outer leaves COMPLETED  False",
    ] == await lines(path, 4)
    assert (str(os.getpid()) in where) == ("process" not in type_)


@pytest.mark.parametrize("type_", RUNNERS)
async def test_a_handler_finds_its_job(app: Holdfast, type_: str) -> None:
    job = await app.submit(type_)

    status = await app.wait(job.job_id, timeout=15)

    assert isinstance(status.output, dict)
    assert [job.job_id, type_, 1, {"by": "/"}, f"{job.job_id}.1"] == status.output["job"]
    assert current_job() is None


@pytest.mark.parametrize("type_", RUNNERS)
@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("raise", "RETRYING ValueError True"),
        ("refuse", "FAILED PermanentError False"),
        ("spawn", "WAITING WaitForChildren True"),
    ],
)
async def test_middleware_sees_the_exception_and_the_outcome(
    app: Holdfast, type_: str, how: str, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "record"
    await app.submit(type_, {"how": how}, headers={"record": str(path)})

    await until(lambda: path.exists() and f"outer leaves {outcome}\n" in path.read_text())

    assert f"inner sees {outcome.split()[1]}\n" in path.read_text()


@pytest.mark.parametrize("type_", RUNNERS)
async def test_middleware_sees_a_timeout(app: Holdfast, type_: str, tmp_path: Path) -> None:
    path = tmp_path / "record"
    await app.wait((await app.submit(type_)).job_id, timeout=15)  # its child process is up
    job = await app.submit(
        type_, {"how": "slow"}, headers={"record": str(path)}, timeout=0.5, max_attempts=1
    )

    assert State.DEAD_LETTER is await ended(app, job.job_id)
    if type_ != "seam.thread":  # a thread cannot be stopped: it leaves when it ends
        found = await lines(path, 4)
        assert found[3].startswith("outer leaves TIMED_OUT")


@pytest.mark.parametrize("type_", RUNNERS)
async def test_middleware_sees_a_cancellation(app: Holdfast, type_: str, tmp_path: Path) -> None:
    path = tmp_path / "record"
    job = await app.submit(type_, {"how": "slow"}, headers={"record": str(path)})
    await until_running(app, job.job_id)
    await appeared(path)

    await app.cancel(job.job_id, force=True)

    assert State.CANCELLED is await ended(app, job.job_id)
    found = await lines(path, 4)
    assert found[3].startswith("outer leaves CANCELLED")


@pytest.mark.parametrize("type_", RUNNERS)
async def test_a_spawned_job_is_submitted_in_the_context_of_its_handler(
    app: Holdfast, type_: str
) -> None:
    job = await app.submit(type_, {"how": "spawn"}, headers={"own": "1"})

    await app.wait(job.job_id, timeout=15)

    (child,) = [one for one in (await app.search()).jobs if one.spawned_by == job.job_id]
    assert {"own": "1", "by": "outer/inner"} == child.headers


async def test_every_way_to_submit_passes_the_middleware() -> None:
    app, seen = Holdfast("memory://"), list[str]()

    class Seeing(Middleware):
        async def submitting(self, submission: Submission) -> Submission:
            await asyncio.sleep(0)
            seen.append(submission.type)
            return replace(submission, tags={"seen": "yes"})

    app.middleware(Seeing())

    @app.task
    async def work() -> None: ...

    async with app:
        await app.submit("one")
        await work.submit()
        await app.submit_batch([Submission(type="two"), {"type": "three"}])
        await app.chain([Submission(type="four"), Submission(type="five")])
        await asyncio.to_thread(lambda: app.sync.submit("six"))
        jobs = (await app.search()).jobs

    assert ["one", work.type, "two", "three", "four", "five", "six"] == seen
    assert [{"seen": "yes"}] * 7 == [job.tags for job in jobs]


async def test_middleware_refuses_a_submission_with_a_fault() -> None:
    app = Holdfast("memory://")

    class Refusing(Middleware):
        def submitting(self, submission: Submission) -> Submission:
            if submission.type == "bad":
                raise ValidationError([Fault("type", "INVALID", "must be good")])
            return submission

    app.middleware(Refusing())
    async with app:
        with pytest.raises(ValidationError):
            await app.submit("bad")
        batch = await app.submit_batch([{"type": "bad"}, {"type": "good"}], atomic=False)

    assert ["REJECTED", "ACCEPTED"] == [str(one.status) for one in batch.results]


class Failing(Middleware):
    """Fails at one end, and records what came of it."""

    def __init__(self, *, at: str) -> None:
        self.at = at

    @contextlib.contextmanager
    def attempt(self, call: AttemptCall) -> Iterator[None]:
        if self.at == "enter":
            raise TemporaryError("not now")
        yield
        raise ConnectionError("cannot commit")


@pytest.mark.parametrize("at", ["enter", "exit"])
async def test_an_error_of_middleware_fails_the_attempt_and_names_it(at: str) -> None:
    app, ran = Holdfast("memory://"), list[int]()
    app.middleware(Failing(at=at))

    @app.task(max_attempts=1)
    async def work() -> None:
        ran.append(1)

    async with app:
        job = await work.submit()
        await Worker(app).run(burst=True)
        failure = (await app.failure(job.job_id)).failure

    assert ([] if at == "enter" else [1]) == ran
    assert failure is not None
    assert {"middleware": f"{__name__}.Failing"} == failure.context
    assert failure.code == ("TemporaryError" if at == "enter" else "ConnectionError")


async def test_middleware_that_hides_an_exception_does_not_complete_the_job() -> None:
    app, outcomes = Holdfast("memory://"), list[AttemptOutcome | None]()

    class Hiding(Middleware):
        @contextlib.contextmanager
        def attempt(self, call: AttemptCall) -> Iterator[None]:
            with contextlib.suppress(ValueError):
                yield
            outcomes.append(call.outcome)

    app.middleware(Hiding())

    @app.task(max_attempts=1)
    def work() -> None:
        raise ValueError("no")

    async with app:
        job = await work.submit()
        await Worker(app).run(burst=True)
        state = (await app.get(job.job_id)).state

    assert State.DEAD_LETTER is state
    assert [AttemptOutcome.FAILED] == outcomes


async def test_middleware_translates_an_exception() -> None:
    app = Holdfast("memory://")

    class Translating(Middleware):
        @contextlib.contextmanager
        def attempt(self, call: AttemptCall) -> Iterator[None]:
            try:
                yield
            except KeyError as error:
                raise TemporaryError("later", retry_after=60, code="LATER") from error

    app.middleware(Translating())

    @app.task
    async def work(ctx: JobContext) -> None:
        raise KeyError("x")

    async with app:
        job = await work.submit()
        await Worker(app).run(burst=True)
        status = await app.get(job.job_id)

    assert State.RETRYING is status.state
    assert status.failure is not None
    assert "LATER" == status.failure.code


@pytest.mark.parametrize("wrong", [object(), Middleware(), Failing, "text"])
def test_what_is_no_middleware_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError, match="must be an object with"):
        Holdfast("memory://").middleware(wrong)


@pytest.mark.parametrize("type_", RUNNERS)
async def test_a_payload_of_another_version_is_released_in_every_runner(
    app: Holdfast, type_: str, tmp_path: Path
) -> None:
    path = tmp_path / "record"
    other = Holdfast("memory://").over(app.store)  # has none of the code

    job = await other.submit(
        Submission(type=type_, payload={"unknown": 1}, headers={"record": str(path)})
    )

    found = await lines(path, 4)
    assert "outer leaves RELEASED MismatchError True" == found[3]
    await app.cancel(job.job_id)


async def test_jobs_of_schedules_pass_the_middleware() -> None:
    clock = ManualClock()
    app = Holdfast(store=MemoryStore(clock), clock=clock)

    class Marking(Middleware):
        def submitting(self, submission: Submission) -> Submission:
            return replace(submission, headers={"by": "middleware"})

    app.middleware(Marking())

    @app.cron("* * * * *")
    @app.task("tick")
    async def tick() -> None: ...

    async with app:
        service = CronService(app, app.store)
        await service.once()
        clock.advance(61)
        await service.once()
        (job,) = (await app.search()).jobs

    assert {"by": "middleware"} == job.headers
