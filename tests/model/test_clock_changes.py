"""What becomes of leases and waits when the store's clock is set."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.clock_changes import TOLERANCE, ClockChange, is_lease_ahead, redated
from holdfast.model.job import Job
from tests.model.making import NOW, TEMPORARY, job, running

HOURS = timedelta(hours=3)
TICK = timedelta(microseconds=1)


def leased(until: datetime | None) -> Job:
    made = running()
    assert made.lease is not None
    return replace(made, lease=replace(made.lease, until=until))


def test_change_says_how_far_the_clock_was_set() -> None:
    assert HOURS == ClockChange(NOW, NOW + HOURS).by
    assert -HOURS == ClockChange(NOW, NOW - HOURS).by


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (NOW - TICK, False),
        (NOW, False),
        (NOW + TICK, True),
        (NOW + HOURS, True),
        (NOW + HOURS + TICK, False),
        (None, False),
    ],
)
def test_lease_ends_in_the_span_that_the_clock_skipped(
    until: datetime | None, *, expected: bool
) -> None:
    change = ClockChange(NOW, NOW + HOURS)

    assert expected is change.skipped_end_of(leased(until))
    assert not change.skipped_end_of(job())


def test_lease_is_ahead_only_if_no_renewal_can_have_set_it() -> None:
    latest = NOW + running().lease_ttl + TOLERANCE

    assert not is_lease_ahead(leased(latest), NOW)
    assert is_lease_ahead(leased(latest + TICK), NOW)
    assert not is_lease_ahead(leased(None), NOW)
    assert not is_lease_ahead(replace(leased(latest + HOURS), lease=None), NOW)
    assert not is_lease_ahead(job(), NOW - HOURS)


@pytest.mark.req("M-3", "M-7")
@pytest.mark.parametrize("waiting", ["delayed", "retrying"])
def test_wait_from_before_the_clock_was_set_back_begins_now(waiting: str) -> None:
    if waiting == "delayed":
        made = job(delay=60)
    else:
        made = lifecycle.after_failure(running(), TEMPORARY, now=NOW)
    assert made.due_at is not None
    now = NOW - HOURS

    after = redated(made, now=now)

    assert (now + (made.due_at - NOW), now) == (after.due_at, after.updated_at)
    assert (made.revision + 1, made.trail) == (after.revision, after.trail)
    assert after is redated(after, now=now + TICK)


def test_wait_that_could_have_begun_now_stays() -> None:
    made = job(delay=60)

    assert made is redated(made, now=NOW - TOLERANCE)
    assert made is not redated(made, now=NOW - TOLERANCE - TICK)


def test_job_that_does_not_wait_for_a_time_stays() -> None:
    for made in (job(), running(), replace(job(delay=1), due_at=None)):
        assert made is redated(made, now=NOW - HOURS)


@pytest.mark.req("M-3")
def test_wait_for_an_instant_that_the_submission_named_stays() -> None:
    made = job(scheduled_at=NOW + HOURS)

    assert made is redated(made, now=NOW - HOURS)


def test_delay_of_a_reopened_job_begins_now_although_its_submission_named_an_instant() -> None:
    failed = lifecycle.lifetime_over(job(scheduled_at=NOW + HOURS), now=NOW)
    made = lifecycle.reopened(failed, now=NOW, delay=TOLERANCE)

    assert NOW - HOURS + TOLERANCE == redated(made, now=NOW - HOURS).due_at


def test_overdue_wait_is_due_now() -> None:
    made = replace(job(delay=60), updated_at=NOW + HOURS)

    assert NOW == redated(made, now=NOW).due_at
