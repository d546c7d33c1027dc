"""Every state of the lease protocol, and known bugs of other queues."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.dependencies import Verdict
from holdfast.model.job import Job, State
from holdfast.store import Change
from holdfast.store.memory.tables import matches
from tests.proofs.lease import Rules, walk


@pytest.mark.req("M-3", "S-4", "S-5", "S-6", "S-10", "S-12", "M-9", "A-12")
def test_no_order_of_events_breaks_the_lease_protocol() -> None:
    found = walk(Rules())

    assert ("", ()) == (found.wrong, found.path)
    assert found.worlds > 50_000
    said = " ".join(found.named)
    for word in ("claims", "beats", "dies", "complete", "fail", "give back", "reaper", "cancels"):
        assert word in said
    assert {"the lease runs out", "the job is due", "the child is released"} <= found.named


def _by_state_alone(stored: Job, change: Change) -> bool:
    return stored.state is change.before.state


def _reaper_without_looking(stored: Job, change: Change) -> bool:
    return change.until is not None or matches(stored, change)


def _client_without_looking(stored: Job, change: Change) -> bool:
    return change.after.state is State.CANCELLED or matches(stored, change)


def _by_name_of_the_worker(stored: Job, change: Change) -> bool:
    before, lease = change.before.lease, stored.lease
    if before is None or lease is None or change.until is not None:
        return matches(stored, change)
    return stored.state is State.RUNNING and before.worker == lease.worker


def _same_token_again(job: Job, **options: Any) -> Job:
    taken = lifecycle.claimed(job, **options)
    return replace(taken, lease=replace(taken.lease, version=1))


def _by_revision_of_nobody(job: Job, token: str) -> bool:
    return job.state in (State.RUNNING, State.RETRYING, State.SCHEDULED)


def _also_when_answered(job: Job, token: str) -> bool:
    return job.lease is not None and job.lease.token == token and _by_revision_of_nobody(job, token)


def _not_after_expiry(job: Job, token: str) -> bool:
    return lifecycle.may_answer(job, token) and job.state is State.RUNNING


def _forgetting(decide: Any) -> Any:
    def decided(job: Job, *args: Any, **options: Any) -> Job:
        return decide(replace(job, cancel=None), *args, **options)

    return decided


def _burning(job: Job, **options: Any) -> Job:
    after = lifecycle.given_back(job, **options)
    return after if after.state is State.CANCELLED else replace(after, attempt=job.attempt)


def _uncounted(job: Job, **options: Any) -> Job:
    return lifecycle.lease_lost(replace(job, attempt=job.attempt - 1), **options)


def _in_any_case(job: Job, verdict: Verdict, **options: Any) -> Job:
    return lifecycle.dependency_ended(job, Verdict(State.SCHEDULED), **options)


MUTANTS = {
    "an outcome of a stale worker is accepted by state alone": (
        Rules(matches=_by_state_alone),
        "reported under the lease",
    ),
    "the reaper overwrites a job that ended meanwhile": (
        Rules(matches=_reaper_without_looking),
        "taken back|became",
    ),
    "a heartbeat renews the lease of another worker": (
        Rules(beats=lambda job, token: job.state is State.RUNNING),
        "renewed by a worker that lost it",
    ),
    "the reaper ends a lease that was renewed meanwhile": (
        Rules(reaper_looks_again=False),
        "a valid lease was taken back",
    ),
    "the outcome of work that ended after its lease is dropped": (
        Rules(may_answer=_not_after_expiry),
        "a valid outcome was dropped",
    ),
    "an outcome that met a newer revision is not sent again": (
        Rules(resends=False),
        "a valid outcome was dropped",
    ),
    "a stale worker decides on the current job": (
        Rules(may_answer=_by_revision_of_nobody),
        "reported under the lease|written twice",
    ),
    "a repeated outcome is written again": (
        Rules(may_answer=_also_when_answered),
        "written twice",
    ),
    "a retry drops the cancel request": (
        Rules(failed=_forgetting(lifecycle.after_failure)),
        "asked to stop, but claimed again",
    ),
    "an expired lease drops the cancel request": (
        Rules(lease_lost=_forgetting(lifecycle.lease_lost)),
        "asked to stop, but claimed again",
    ),
    "giving a job back drops the cancel request": (
        Rules(given_back=_forgetting(lifecycle.given_back)),
        "asked to stop, but claimed again",
    ),
    "giving back uses up an attempt": (Rules(given_back=_burning), "count as"),
    "crashes do not count as attempts": (Rules(lease_lost=_uncounted), "start 3 of 2"),
    "any process with the name of the worker may report": (
        Rules(matches=_by_name_of_the_worker),
        "reported under the lease",
    ),
    "a restarted worker uses its old token": (
        Rules(token=lambda job, worker: worker),
        "received before its work was done",
    ),
    "claims are not numbered": (Rules(claimed=_same_token_again), "was followed by"),
    "the lease of a dead worker never expires": (
        Rules(runs_out=False),
        "no path leads to an end",
    ),
    "a job is acknowledged before its work is done": (
        Rules(early=True),
        "before its work was done",
    ),
    "a long run is reaped although its lease is renewed": (
        Rules(expired=lambda lease: lease.until is not None),
        "a valid lease was taken back",
    ),
    "cancelling overwrites a change made meanwhile": (
        Rules(matches=_client_without_looking),
        "was followed by",
    ),
    "cancelling is confirmed without being written": (
        Rules(confirms=True),
        "reported as cancelled",
    ),
    "a dependent runs whatever the end of its dependency": (
        Rules(release=_in_any_case),
        "the child starts while",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_known_bug_is_found_with_its_path(name: str) -> None:
    rules, wrong = MUTANTS[name]

    found = walk(rules)

    assert any(part in found.wrong for part in wrong.split("|")), found
    assert 1 <= len(found.path) <= 12
