"""Finding jobs: filters, orders, pages."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast, State, ValidationError
from holdfast.runtime.clock import ManualClock


@pytest.fixture
async def jobs(app: Holdfast, clock: ManualClock) -> dict[str, str]:
    """Five jobs, a minute apart."""
    made = {}
    for name, type_, options in (
        ("mail", "email.send", {"tags": {"team": "a", "kind": "x"}, "priority": "HIGH"}),
        ("more", "email.send", {"tags": {"team": "b"}, "queue": "mail"}),
        ("later", "email.send", {"delay": 3600, "correlation_id": "trace"}),
        ("report", "report", {"tags": {"team": "a"}}),
        ("gone", "report", {"priority": 4}),
    ):
        made[name] = (await app.submit(type_, **options)).job_id  # type: ignore[arg-type]
        clock.advance(60)
    await app.cancel(made["gone"])
    return made


@pytest.mark.req("A-7")
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["gone", "report", "later", "more", "mail"]),
        ({"types": ["email.send"]}, ["later", "more", "mail"]),
        ({"queues": ["mail"]}, ["more"]),
        ({"states": ["DELAYED", State.CANCELLED]}, ["gone", "later"]),
        ({"priorities": ["HIGH", 4]}, ["gone", "mail"]),
        ({"tags": {"team": "a"}}, ["report", "mail"]),
        ({"tags": {"team": "a", "kind": "x"}}, ["mail"]),
        ({"correlation_id": "trace"}, ["later"]),
        ({"types": ["report"], "states": ["SCHEDULED"]}, ["report"]),
        ({"order": "CREATED_ASC"}, ["mail", "more", "later", "report", "gone"]),
        ({"order": "UPDATED_DESC", "limit": 1}, ["gone"]),
        ({"types": ["unheard.of"]}, []),
    ],
)
async def test_filters_are_combined(
    app: Holdfast, jobs: dict[str, str], wanted: dict[str, object], found: list[str]
) -> None:
    result = await app.search(**wanted)  # type: ignore[arg-type]  # one filter of each kind

    assert [jobs[name] for name in found] == [job.job_id for job in result.jobs]


@pytest.mark.req("A-7", "A-9")
async def test_jobs_are_found_by_time(
    app: Holdfast, jobs: dict[str, str], clock: ManualClock
) -> None:
    start = clock.now() - timedelta(minutes=5)

    after = await app.search(created_after=start + timedelta(minutes=3))
    before = await app.search(created_before=(start + timedelta(minutes=1)).isoformat())
    moved = await app.search(updated_after=clock.now())

    assert {jobs["report"], jobs["gone"]} == {job.job_id for job in after.jobs}
    assert [jobs["mail"]] == [job.job_id for job in before.jobs]
    assert [jobs["gone"]] == [job.job_id for job in moved.jobs]


@pytest.mark.req("A-7")
async def test_pages_follow_each_other_without_gap_while_jobs_arrive(
    app: Holdfast, jobs: dict[str, str]
) -> None:
    first = await app.search(limit=2)
    await app.submit("newcomer")
    second = await app.search(limit=2, cursor=first.next_cursor)
    third = await app.search(limit=2, cursor=second.next_cursor)

    seen = [job.job_id for page in (first, second, third) for job in page.jobs]
    assert [jobs[name] for name in ("gone", "report", "later", "more", "mail")] == seen
    assert (True, True, False) == (first.has_more, second.has_more, third.has_more)
    assert third.next_cursor is None
    assert (5, True) == (first.total_count, first.total_exact)


@pytest.mark.req("A-7", "A-3")
@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"states": ["ASLEEP"]}, "states"),
        ({"states": "PENDING"}, "states"),
        ({"priorities": ["URGENT"]}, "priorities"),
        ({"order": "RANDOM"}, "order"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"cursor": "garbage"}, "cursor"),
        ({"tags": ["team"]}, "tags"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_wrong_filter_is_named(app: Holdfast, wanted: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        await app.search(**wanted)  # type: ignore[arg-type]  # that is the point

    assert [field] == [fault.field for fault in caught.value.faults]
