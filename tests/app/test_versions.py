"""Deploys: jobs of one version of the code beside workers of another, on every store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import Holdfast, State, Worker
from holdfast.maintenance.reaper import Reaper
from holdfast.observe import Silent
from holdfast.operations.doctor import examine
from holdfast.operations.explain import Cause
from holdfast.runtime.clock import ManualClock
from holdfast.store import Level
from tests.app.conftest import Drain
from tests.conformance.stores import Place
from tests.waiting import eventually

pytestmark = pytest.mark.req("E-3")


async def old(name: str) -> str:
    return f"old {name}"


async def new(name: str, email: str) -> str:
    return f"new {name} {email}"


async def test_payload_that_does_not_fit_waits_for_another_version(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    job = await app.submit("greet", {"name": "Ada", "email": "ada@example.org"})
    app.register("greet", old)

    await drain()

    status = await app.get(job.job_id)
    assert (State.RETRYING, 0) == (status.state, status.attempt)
    explained = await app.explain(job.job_id)
    assert Cause.OTHER_VERSION is explained.cause
    assert "unknown field `email`" in explained.message
    (finding,) = [one for one in await examine(app.store) if one.name == "versions"]
    assert Level.WARN is finding.level
    assert "1 job of type 'greet' waits for a worker of another version" in finding.text

    app.register("greet", new)
    clock.advance(5)
    await app.store.promote(10)
    await drain()

    status = await app.get(job.job_id)
    assert (State.COMPLETED, "new Ada ada@example.org", 1) == (
        status.state,
        status.output,
        status.attempt,
    )
    assert [] == [one for one in await examine(app.store) if one.name == "versions"]


async def test_wait_ends_with_the_lifetime(app: Holdfast, drain: Drain, clock: ManualClock) -> None:
    job = await app.submit("greet", {"wrong": 1}, lifetime=90)
    app.register("greet", old)

    await drain()
    clock.advance(91)
    await Reaper(app.store, app.randomness, Silent()).once()
    await drain()

    status = await app.get(job.job_id)
    assert status.state in (State.FAILED, State.DEAD_LETTER)
    assert status.failure is not None


async def test_jobs_of_an_earlier_name_run(app: Holdfast, drain: Drain) -> None:
    job = await app.submit("hello", {"name": "Ada"})

    app.register("greet", old, aliases=["hello", "hi"])
    await drain()
    other = await app.submit("hi", {"name": "Bob"})
    await drain()

    assert "old Ada" == (await app.get(job.job_id)).output
    assert "old Bob" == (await app.get(other.job_id)).output


@pytest.mark.parametrize("runner", ["async", "thread"])
async def test_payloads_of_earlier_versions_are_upgraded(
    app: Holdfast, drain: Drain, runner: str
) -> None:
    def plain(first: str, last: str, email: str) -> str:
        return f"{first} {last} {email}"

    async def coroutine(first: str, last: str, email: str) -> str:
        return f"{first} {last} {email}"

    def to_second(payload: dict[str, str]) -> dict[str, str]:
        return {"name": payload["name"], "email": "unknown"}

    def to_third(payload: dict[str, str]) -> dict[str, str]:
        first, last = payload["name"].split()
        return {"first": first, "last": last, "email": payload["email"]}

    one = await app.submit("greet", {"name": "Ada L"})
    app.register("greet", new, version=2)
    two = await app.submit("greet", {"name": "Bob M", "email": "b@x"}, headers={"a": "b"})
    app.register(
        "greet",
        plain if runner == "thread" else coroutine,
        version=3,
        upgrades={1: to_second, 2: to_third},
    )
    three = await app.submit("greet", {"first": "Eve", "last": "N", "email": "e@x"})
    await drain()

    outputs = [(await app.get(job.job_id)).output for job in (one, two, three)]
    assert ["Ada L unknown", "Bob M b@x", "Eve N e@x"] == outputs


async def test_job_of_a_later_version_waits_although_its_payload_fits(
    app: Holdfast, drain: Drain
) -> None:
    app.register("greet", old, version=2)
    job = await app.submit("greet", {"name": "Ada"})
    app.register("greet", old)

    await drain()

    explained = await app.explain(job.job_id)
    assert Cause.OTHER_VERSION is explained.cause
    assert "has version 2 of the task, this worker has version 1" in explained.message


async def test_upgrade_that_fails_fails_the_attempt(app: Holdfast, drain: Drain) -> None:
    def broken(payload: object) -> object:
        raise KeyError("name")

    job = await app.submit("greet", {"nom": "Ada"})
    app.register("greet", old, version=2, upgrades={1: broken}, max_attempts=1)

    await drain()

    status = await app.get(job.job_id)
    assert status.failure is not None
    assert "KeyError" == status.failure.code


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 0}, "version must be at least 1"),
        ({"version": 2, "upgrades": {2: old}}, "upgrades must map versions 1 to 1"),
        ({"on_mismatch": "ignore"}, "on_mismatch must be one of wait, fail"),
        ({"aliases": "hello"}, "aliases must be a list of types"),
        ({"aliases": ["no good"]}, "aliases must match"),
        ({"aliases": ["greet"]}, "is registered already"),
        ({"aliases": ["taken"]}, "is registered already"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    app = Holdfast("memory://")
    app.register("taken", old)

    result = app.register("greet", old, **options)  # type: ignore[arg-type]

    assert message in result.message


class Fleet:
    """Apps of two versions over one store, and their workers."""

    def __init__(self, place: Place) -> None:
        shared = place.open() if place.url.startswith("memory") else None
        self.first = Holdfast(place.url, store=shared, version="v1")
        self.second = Holdfast(place.url, store=shared, version="v2")
        self.first.register("greet", old)
        self.second.register(
            "welcome",
            new,
            aliases=["greet"],
            version=2,
            upgrades={1: lambda payload: {**payload, "email": "none"}},
        )

    @contextlib.asynccontextmanager
    async def working(self, app: Holdfast) -> AsyncIterator[None]:
        async with Worker(app, slots=5, grace=timedelta(seconds=5)):
            yield


@pytest.mark.slow
async def test_a_deploy_and_its_rollback_fail_no_job(place: Place) -> None:
    fleet, jobs = Fleet(place), list[str]()
    is_over = asyncio.Event()

    async def load() -> None:
        """Submit jobs of both versions all the time, from the code of each."""
        while not is_over.is_set():
            name = f"n{len(jobs)}"
            jobs.append((await fleet.first.submit("greet", {"name": name})).job_id)
            given = {"name": name, "email": "e"}
            jobs.append((await fleet.second.submit("welcome", given)).job_id)
            jobs.append((await fleet.second.submit("greet", given)).job_id)
            await asyncio.sleep(0.02)  # the rate of the load

    async with fleet.first as first, fleet.second as second:
        loading = asyncio.create_task(load())
        async with fleet.working(first):
            await asyncio.sleep(0.4)  # only the old code
            async with fleet.working(second):
                await asyncio.sleep(0.4)  # both
        async with fleet.working(second):
            await asyncio.sleep(0.4)  # only the new code
            async with fleet.working(first):
                await asyncio.sleep(0.4)  # rolling back
        async with fleet.working(first):
            waiting = await eventually(lambda: _waiting(first, jobs))
            is_over.set()
            await loading
        async with fleet.working(second):
            ended = [await first.wait(job_id, timeout=60) for job_id in jobs]

    assert Cause.OTHER_VERSION in {one.cause for one in waiting}
    assert {State.COMPLETED} == {job.state for job in ended}
    assert {1} == {job.attempt for job in ended}


async def _waiting(app: Holdfast, jobs: list[str]) -> list[object]:
    found = await app.search(states=["RETRYING"], limit=20)
    return [await app.explain(job.job_id) for job in found.jobs]
