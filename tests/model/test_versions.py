"""Jobs that wait for a worker of another version: the decisions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import CancelRequest, Event, Failure, FailureCategory, State, read_extra
from holdfast.model.submission import Defaults, Spawner
from holdfast.model.versions import MISMATCH, PATIENCE, awaiting_version, awaits_version
from tests.model.making import ID, LATER, NOW, job, running

UNFIT = Failure(category=FailureCategory.TEMPORARY, message="does not fit", code=MISMATCH)


def test_job_waits_and_uses_up_no_attempt() -> None:
    claimed = running()

    after = awaiting_version(claimed, UNFIT, now=LATER)

    assert (State.RETRYING, 0) == (after.state, after.attempt)
    assert after.failure is not None
    assert (LATER, "w1", MISMATCH) == (after.failure.at, after.failure.worker, after.failure.code)
    assert (Event.GIVE_BACK, "does not fit") == (after.trail[-1].event, after.trail[-1].reason)
    assert awaits_version(after)
    assert not awaits_version(claimed)


def test_wait_grows_with_the_claims_in_vain_up_to_a_minute() -> None:
    waits, claimed, now = list[timedelta](), running(), NOW
    for number in range(13):
        after = awaiting_version(claimed, UNFIT, now=now)
        assert after.due_at is not None
        waits.append(after.due_at - now)
        now = after.due_at
        ready = lifecycle.due(after, now=now)
        claimed = lifecycle.claimed(ready, token=f"n{number}", worker="w1", now=now)

    seconds = [wait.total_seconds() for wait in waits]
    assert [0.5, 0.5, 0.5, 0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60] == seconds


def test_jitter_spreads_the_waits() -> None:
    early = awaiting_version(running(), UNFIT, now=NOW, jitter=-1.0)
    late = awaiting_version(running(), UNFIT, now=NOW, jitter=1.0)

    assert (NOW + timedelta(seconds=0.375), NOW + timedelta(seconds=0.625)) == (
        early.due_at,
        late.due_at,
    )


@pytest.mark.parametrize("lifetime", [timedelta(days=1), timedelta(days=30)])
def test_wait_ends_with_the_lifetime_or_after_a_week(lifetime: timedelta) -> None:
    claimed = running(lifetime=lifetime)

    after = awaiting_version(claimed, UNFIT, now=NOW + min(lifetime, PATIENCE))

    assert State.FAILED is after.state or State.DEAD_LETTER is after.state
    assert after.failure is not None
    assert not awaits_version(after)


def test_cancelled_job_does_not_wait() -> None:
    claimed = replace(running(), cancel=CancelRequest("stop", force=False, at=NOW))

    assert State.CANCELLED is awaiting_version(claimed, UNFIT, now=LATER).state


def test_job_without_a_lease_names_no_worker() -> None:
    after = awaiting_version(replace(running(), lease=None), UNFIT, now=LATER)

    assert after.failure is not None
    assert "" == after.failure.worker


def test_submission_carries_the_version_of_its_task() -> None:
    second = Defaults(version=2)
    spawner = Spawner(ID, "k", job(headers={"trace": "1"}).extra)

    versions = [
        read_extra(made.extra).version
        for made in (
            job(),
            job(defaults=second),
            job(defaults=second, headers={"a": "b"}),
            job(defaults=second, spawner=spawner),
            job(defaults=second, spawner=spawner, delay=5),
        )
    ]

    assert [1, 2, 2, 2, 2] == versions
    assert {"trace": "1"} == read_extra(job(defaults=second, spawner=spawner).extra).headers
    assert job().extra is None
