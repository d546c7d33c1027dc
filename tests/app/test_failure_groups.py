"""Failures in groups, on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast, PermanentError, TemporaryError, ValidationError, Worker
from holdfast.maintenance.pruner import Pruner
from holdfast.model.failure_groups import MOST_GROUPS, OTHER
from holdfast.model.policy import Retention
from holdfast.model.reserved import FAILURE_BOOKS
from holdfast.operations.failure_groups import failure_groups
from holdfast.runtime.clock import ManualClock
from holdfast.store import RecordWrite
from holdfast.store.tenants import TenantStore
from tests.app.conftest import Drain

pytestmark = pytest.mark.req("O-4")

HOUR = 3600


@pytest.fixture(autouse=True)
def tasks(app: Holdfast) -> None:
    @app.task("mail", max_attempts=2)
    async def mail(text: str, code: str = "SMTP") -> None:
        raise PermanentError(text, code=code)

    @app.task("again", max_attempts=2)
    async def again(text: str) -> None:
        raise TemporaryError(text, code="LATER")


async def test_failures_alike_are_one_group(app: Holdfast, drain: Drain) -> None:
    for n in range(3):
        await app.submit("mail", {"text": f"user {n} of 'team {n}' is unknown"})
    last = await app.submit("mail", {"text": "no route to host"})
    await drain()

    found = await app.failure_groups()

    many, one = found.groups
    assert ("mail", "SMTP", "user <number> of <text> is unknown", 3) == (
        many.type,
        many.code,
        many.message,
        many.count,
    )
    assert (1, last.job_id) == (one.count, one.sample_job_id)
    assert (4, 0, {"mail": 4}) == (found.total, found.ungrouped, found.failed_now)
    assert (61, 3) == (len(many.series), many.series[-1])
    assert app.store.now() - timedelta(hours=1, minutes=1) < found.since
    assert many.first_seen <= many.last_seen <= app.store.now()


async def test_only_jobs_that_ended_count(app: Holdfast, drain: Drain, clock: ManualClock) -> None:
    await app.submit("again", {"text": "busy"})
    await drain()
    assert () == (await app.failure_groups()).groups

    clock.advance(HOUR)
    await drain()

    (group,) = (await app.failure_groups()).groups
    assert ("LATER", 1) == (group.code, group.count)


async def test_retried_and_deleted_jobs_still_count_in_the_window(
    app: Holdfast, drain: Drain
) -> None:
    jobs = [await app.submit("mail", {"text": "no"}) for _ in range(3)]
    await drain()
    await app.delete(jobs[0].job_id)
    await app.retry(jobs[1].job_id)

    found = await app.failure_groups()

    assert [3] == [group.count for group in found.groups]
    assert {"mail": 1} == found.failed_now


async def test_windows_pass_and_long_ones_count_by_hours(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    await app.submit("mail", {"text": "early"})
    await drain()
    clock.advance(2 * HOUR)
    await app.submit("mail", {"text": "late"})
    await drain()

    hour, day = await app.failure_groups(), await app.failure_groups(time_range="P1D")

    assert ["late"] == [group.message for group in hour.groups]
    assert {"early", "late"} == {group.message for group in day.groups}
    assert (timedelta(hours=1), 25) == (day.step, len(day.groups[0].series))
    assert (1, 2) == (hour.total, day.total)


async def test_hostile_messages_make_a_bounded_number_of_groups(
    app: Holdfast, drain: Drain
) -> None:
    words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(5 * MOST_GROUPS)]
    await app.submit_batch([{"type": "mail", "payload": {"text": word}} for word in words])
    await drain()

    found = await app.failure_groups()

    assert len(words) == found.total == sum(group.count for group in found.groups)
    assert len(found.groups) <= 4 * (MOST_GROUPS + 1)
    assert OTHER in {group.group for group in found.groups}


async def test_jobs_of_a_group_are_found_page_by_page_and_retried(
    app: Holdfast, drain: Drain
) -> None:
    for n in range(5):
        await app.submit("mail", {"text": f"a {n}"})
        await app.submit("mail", {"text": f"b {n}"})
    await drain()
    group = next(g for g in (await app.failure_groups()).groups if g.message == "a <number>")

    pages = [await app.search(group=group.group, limit=2)]
    while pages[-1].next_cursor:
        pages.append(await app.search(group=group.group, limit=2, cursor=pages[-1].next_cursor))
    retried = await app.retry_batch(filter={"group": group.group})

    found = [job.failure.message for page in pages for job in page.jobs if job.failure]
    assert sorted(f"a {n}" for n in range(5)) == sorted(found)
    assert (5, 5) == (retried.requested, retried.retried)
    assert 0 == len((await app.search(group=group.group)).jobs)


@pytest.mark.parametrize("cursor", ["", "x", "1", "99999.", "1.nonsense"])
async def test_a_cursor_of_another_search_is_refused(app: Holdfast, cursor: str) -> None:
    await app.submit("mail", {"text": "x"})

    with pytest.raises(ValidationError):
        await app.search(group="0" * 12, cursor=cursor)


@pytest.mark.parametrize("window", [0, -1, "P8D", "soon"])
async def test_a_window_out_of_range_is_refused(app: Holdfast, window: object) -> None:
    with pytest.raises(ValidationError, match="time_range"):
        await app.failure_groups(time_range=window)  # type: ignore[arg-type]


async def test_a_tenant_sees_its_own_groups(app: Holdfast, drain: Drain) -> None:
    views = {name: TenantStore(app.store, name) for name in ("acme", "other", "")}
    for name, view in views.items():
        async with Holdfast(store=view, clock=app.clock) as tenant:
            await tenant.submit("mail", {"text": f"of {name}s"})
    await drain(queues=["acme/default", "default"])
    async with Holdfast(store=views["other"], clock=app.clock) as tenant:
        tenant.task("mail")(refuse)
        await Worker(tenant, maintenance=False).run(burst=True)

    shown = {
        name: [g.message for g in (await failure_groups(view, timedelta(hours=1))).groups]
        for name, view in views.items()
    }

    assert {"acme": ["of acmes"], "other": ["refused"], "": ["of s"]} == shown
    everything = await app.failure_groups()
    assert {"of acmes", "of s", "refused"} == {g.message for g in everything.groups}
    assert 3 == everything.total


async def refuse(text: str) -> None:
    raise PermanentError("refused")


async def test_old_books_are_pruned(app: Holdfast, drain: Drain, clock: ManualClock) -> None:
    await app.submit("mail", {"text": "x"})
    await drain()
    pruner = Pruner(app.store, Retention())
    await pruner.once()
    assert 2 == len(await app.store.browse(FAILURE_BOOKS))

    clock.advance(4 * HOUR)
    await pruner.once()
    assert ["h"] == [record.key[0] for record in await app.store.browse(FAILURE_BOOKS)]

    clock.advance(8 * 24 * HOUR)
    await pruner.once()
    assert [] == await app.store.browse(FAILURE_BOOKS)


async def test_a_damaged_book_is_no_obstacle(app: Holdfast, drain: Drain) -> None:
    await app.submit("mail", {"text": "x"})
    await drain()
    for record in await app.store.browse(FAILURE_BOOKS):
        write = RecordWrite(kind=FAILURE_BOOKS, key=record.key, data=b"{")
        await app.store.keep([write])

    found = await app.failure_groups()

    assert ((), 1, 1) == (found.groups, found.total, found.ungrouped)
