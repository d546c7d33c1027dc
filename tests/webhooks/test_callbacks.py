"""A callback address that will be refused is refused when the job is submitted."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, JobContext, State, Submission, SubmissionStatus, ValidationError
from holdfast.webhooks import WebhookSettings
from holdfast.webhooks.callbacks import RESOLVE_WITHIN
from holdfast.worker import Worker
from tests.http.site import API, running

pytestmark = pytest.mark.req("A-19")

PUBLIC = "https://hooks.invalid/done"
"""An address whose name never resolves."""
REFUSED = {
    "https://127.0.0.1/": "127.0.0.1 is not a public address",
    "https://localhost/": "localhost resolves to",
    "https://169.254.169.254/latest": "169.254.169.254 is not a public address",
    "https://[::1]/": "::1 is not a public address",
    "http://hooks.invalid/": "must begin with https://",
    "https://hooks.invalid:22/": "port 22 is refused",
}


@pytest.mark.parametrize("url", REFUSED)
async def test_address_that_will_be_refused_is_refused_at_submit(url: str) -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as caught:
            await app.submit("a", callback_url=url)
        found = await app.search()

    (fault,) = caught.value.faults
    assert ("callback_url", "REFUSED") == (fault.field, fault.code)
    assert REFUSED[url] in fault.message
    assert "HOLDFAST_WEBHOOKS_ALLOW" in fault.message
    assert not found.jobs


async def test_name_that_does_not_resolve_now_is_accepted() -> None:
    async with Holdfast("memory://") as app:
        job = await app.submit("a", callback_url=PUBLIC)

    assert SubmissionStatus.ACCEPTED is job.status


@pytest.mark.parametrize("allow", [("private",), ("127.0.0.0/8", "::1/128")])
async def test_address_that_the_settings_allow_is_accepted(allow: tuple[str, ...]) -> None:
    async with Holdfast("memory://", webhooks=WebhookSettings(allow=allow)) as app:
        job = await app.submit("a", callback_url="https://localhost/")

    assert SubmissionStatus.ACCEPTED is job.status


async def test_every_fault_of_a_submission_is_reported_at_once() -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as caught:
            await app.submit("a", callback_url="https://localhost/", max_attempts=-1)

    assert {"callback_url", "max_attempts"} == {fault.field for fault in caught.value.faults}


async def test_address_that_cannot_be_read_has_one_fault() -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as caught:
            await app.submit("a", callback_url="ftp://localhost/")

    assert ["INVALID"] == [fault.code for fault in caught.value.faults]


async def test_batch_names_the_job_and_without_atomic_refuses_only_that_one() -> None:
    jobs = [Submission(type="a"), Submission(type="b", callback_url="https://localhost/")]
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as caught:
            await app.submit_batch(jobs)
        result = await app.submit_batch(jobs, atomic=False)

    assert ["jobs[1].callback_url"] == [fault.field for fault in caught.value.faults]
    accepted, rejected = result.results
    assert SubmissionStatus.ACCEPTED is accepted.status
    assert SubmissionStatus.REJECTED is rejected.status


async def test_spawned_job_is_checked_in_the_handler() -> None:
    app = Holdfast("memory://")

    @app.task("parent", max_attempts=1)
    async def parent(ctx: JobContext) -> str:
        try:
            await ctx.spawn("child", callback_url="https://localhost/")
        except ValidationError as error:
            return error.faults[0].code
        return "spawned"

    async with app:
        job = await app.submit("parent")
        await Worker(app).run(burst=True)
        done = await app.get(job.job_id)

    assert (State.COMPLETED, "REFUSED") == (done.state, done.output)


def test_schedule_with_a_refused_address_is_refused_when_declared() -> None:
    app = Holdfast("memory://")

    @app.task("tidy")
    async def tidy() -> None: ...

    with pytest.raises(ValidationError, match="callback_url is refused"):
        app.cron("* * * * *", callback_url="https://127.0.0.1/")(tidy)


async def test_service_refuses_the_address_with_its_fault() -> None:
    app = Holdfast("memory://")
    async with running(app) as site:
        job = {"type": "t", "payload": {}, "callback_url": "https://localhost/"}
        response = await site.call("POST", f"{API}/jobs", job)

    assert 400 == response.status
    assert "REFUSED" in str(response.json)
    assert "callback_url" in str(response.json)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The names that are looked up, and the thread that does it."""
    found: list[tuple[str, int]] = []
    look_up: Callable[..., Any] = socket.getaddrinfo

    def recorded(host: str, *args: Any, **kwargs: Any) -> Any:
        found.append((host, threading.get_ident()))
        return look_up(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", recorded)
    return found


async def test_name_is_looked_up_once_in_another_thread_and_only_for_callbacks(
    lookups: list[tuple[str, int]],
) -> None:
    async with Holdfast("memory://") as app:
        await app.submit("a", max_attempts=2)
        await app.submit_batch([Submission(type="a")] * 3)
        before = list(lookups)
        await app.submit_batch([Submission(type="a", callback_url=PUBLIC)] * 3)
        await app.submit("a", callback_url=PUBLIC)

    assert [] == before
    assert ["hooks.invalid"] == [host for host, _ in lookups]
    assert threading.get_ident() != lookups[0][1]


async def test_lookup_that_takes_too_long_blocks_nothing_and_refuses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer.wait(30) and [])
    async with Holdfast("memory://") as app:
        started = time.monotonic()
        slow = asyncio.create_task(app.submit("a", callback_url=PUBLIC))
        await app.submit("a")
        others_after = time.monotonic() - started
        job = await slow
        answer.set()

    assert SubmissionStatus.ACCEPTED is job.status
    assert others_after < RESOLVE_WITHIN / 2
