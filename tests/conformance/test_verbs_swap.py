"""``swap``: decided changes, written under a fence or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import Event, FailureCategory, State
from holdfast.store import Change, Swapped
from tests.conformance.decisions import DECISIONS, ENDINGS, REFUSED
from tests.conformance.hand import LEASE, MANY, TICK, fence

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand


@pytest.fixture
async def running(hand: Hand) -> Job:
    """A job that has just been claimed."""
    return await hand.run("a")


@pytest.mark.req("A-5")
async def test_written_job_is_the_decided_one(hand: Hand, running: Job) -> None:
    decided = lifecycle.completed(running, b'{"x": 1}', now=hand.now)

    answer = await hand.try_swap(running, decided)

    assert Swapped(written=True) == answer
    assert replace(decided, trail=()) == await hand.get(running)


@pytest.mark.req("A-14", "M-11")
async def test_failure_is_stored_with_all_its_fields(hand: Hand, running: Job) -> None:
    hand.clock.advance(3)

    failed = await hand.swap(running, DECISIONS["refuse"](running, hand.now))

    assert State.FAILED is failed.state
    expected = replace(
        REFUSED, attempt=1, at=hand.now, duration=hand.now - running.created_at, worker="w1"
    )
    assert expected == failed.failure
    (history,) = await hand.store.history([running.id])
    assert expected == history[-1].failure


@pytest.mark.req("M-3", "S-15")
async def test_every_edge_of_a_trail_is_appended_to_the_history(hand: Hand, running: Job) -> None:
    back = lifecycle.given_back(running, now=hand.now)

    await hand.swap(running, back)

    (history,) = await hand.store.history([running.id])
    assert [Event.SUBMIT, Event.ENQUEUE, Event.CLAIM, Event.GIVE_BACK, Event.DUE] == [
        edge.event for edge in history
    ]
    assert list(back.trail) == history[-2:]


@pytest.mark.req("S-5")
async def test_change_decided_on_an_older_revision_is_not_written(hand: Hand, running: Job) -> None:
    requested = await hand.cancel(running)

    answer = await hand.try_swap(running, lifecycle.completed(running, b"1", now=hand.now))

    assert Swapped(written=False, job=requested) == answer
    assert requested == await hand.get(running)
    assert 3 == len((await hand.store.history([running.id]))[0])


@pytest.mark.req("S-5")
async def test_stale_worker_cannot_settle_a_job_that_was_taken_again(
    hand: Hand, running: Job
) -> None:
    hand.clock.advance(LEASE)
    await hand.lapse(running)
    hand.clock.advance(LEASE)
    await hand.store.promote(MANY)
    newer = await hand.take(running, worker="w2")

    answers = [
        await hand.try_swap(running, decide(running, hand.now)) for decide in ENDINGS.values()
    ]

    assert [Swapped(written=False, job=newer)] * len(ENDINGS) == answers
    assert newer == await hand.get(running)


@pytest.mark.req("S-5")
async def test_forged_token_is_refused_even_at_the_right_revision(hand: Hand, running: Job) -> None:
    assert running.lease is not None
    forged = replace(running, lease=replace(running.lease, token="forged"))

    answer = await hand.try_swap(forged, lifecycle.completed(forged, b"1", now=hand.now))

    assert Swapped(written=False, job=running) == answer
    assert running == await hand.get(running)


@pytest.mark.req("S-5")
async def test_answer_for_a_deleted_job_does_not_count_for_one_of_the_same_id(
    hand: Hand, running: Job
) -> None:
    await hand.swap(running, lifecycle.completed(running, b"1", now=hand.now))
    assert [True] == await hand.store.delete([running.id])
    again = await hand.cancel(await hand.add("a"))
    assert running.revision == again.revision

    answer = await hand.try_swap(running, lifecycle.completed(running, b"2", now=hand.now))

    assert Swapped(written=False, job=again) == answer
    assert again == await hand.get(running)


async def test_change_of_an_unknown_job_answers_that_it_is_gone(hand: Hand) -> None:
    unknown = hand.job("nobody")

    answer = await hand.try_swap(unknown, lifecycle.cancelled(unknown, now=hand.now))

    assert Swapped(written=False, job=None) == answer


async def test_each_change_stands_alone_and_answers_in_place(hand: Hand) -> None:
    a, b, c = [await hand.run(name) for name in "abc"]
    stale = replace(b, revision=b.revision - 1)

    answers = await hand.store.swap(
        [Change(job, lifecycle.completed(job, b"1", now=hand.now)) for job in (a, stale, c)]
    )

    assert [True, False, True] == [answer.written for answer in answers]
    states = [job.state for job in await hand.get_all(a, b, c)]
    assert [State.COMPLETED, State.RUNNING, State.COMPLETED] == states


@pytest.mark.req("S-5")
async def test_of_two_changes_on_one_job_in_one_call_the_first_wins(
    hand: Hand, running: Job
) -> None:
    done = lifecycle.completed(running, b"1", now=hand.now)
    dropped = lifecycle.cancelled(running, now=hand.now)

    answers = await hand.store.swap([Change(running, done), Change(running, dropped)])

    assert [True, False] == [answer.written for answer in answers]
    assert State.COMPLETED is (await hand.get(running)).state
    assert 4 == len((await hand.store.history([running.id]))[0])


@pytest.mark.req("M-12")
async def test_payload_progress_and_checkpoint_are_not_written_by_a_swap(
    hand: Hand, running: Job
) -> None:
    await hand.note(running, checkpoint=b"kept")
    decided = lifecycle.completed(running, b"1", now=hand.now)
    forged = replace(decided, payload=b"other", checkpoint=b"other", depends_on=("x",))

    written = await hand.swap(running, forged)

    assert (running.payload, b"kept", ()) == (
        written.payload,
        written.checkpoint,
        written.depends_on,
    )


@pytest.mark.req("S-12", "S-5")
async def test_repeated_answer_is_recognised_by_its_token(hand: Hand, running: Job) -> None:
    done = lifecycle.completed(running, b"1", now=hand.now)
    await hand.swap(running, done)

    answer = await hand.try_swap(running, done)

    assert not answer.written
    assert answer.job is not None
    assert running.lease is not None
    assert lifecycle.has_answered(answer.job, running.lease.token)
    assert 4 == len((await hand.store.history([running.id]))[0])


# --- lapse and late answers -----------------------------------------------------------------


@pytest.mark.req("S-6")
async def test_lapse_is_written_when_the_lease_still_ends_when_it_did(
    hand: Hand, running: Job
) -> None:
    hand.clock.advance(LEASE)

    lapsed = await hand.lapse(running)

    assert State.RETRYING is lapsed.state
    assert running.lease == lapsed.lease
    (history,) = await hand.store.history([running.id])
    assert (Event.LAPSE, "lease expired") == (history[-1].event, history[-1].reason)


@pytest.mark.req("S-6", "M-11")
async def test_lapse_ends_a_job_that_does_not_retry_crashes(hand: Hand) -> None:
    usual = hand.job("usual")
    fragile = hand.job("fragile", retry_crashes=False)
    await hand.add_all(usual, fragile)
    taken = {job.id: job for job in await hand.claim(2)}
    hand.clock.advance(LEASE)
    overdue = {job.id: job for job in await hand.store.overdue(9)}

    retried = await hand.lapse(overdue[usual.id])
    ended = await hand.lapse(overdue[fragile.id])

    assert (True, False) == (retried.retry_crashes, ended.retry_crashes)
    assert (State.RETRYING, State.FAILED) == (retried.state, ended.state)
    assert ended.failure is not None
    assert ("SYSTEM", "LEASE_EXPIRED") == (ended.failure.category, ended.failure.code)
    late = lifecycle.completed(taken[fragile.id], b"1", now=hand.now)
    assert not (await hand.try_swap(taken[fragile.id], late)).written
    assert ended == await hand.get(ended)


@pytest.mark.req("S-6", "S-5")
async def test_heartbeat_before_the_lapse_wins(hand: Hand, running: Job) -> None:
    assert running.lease is not None
    hand.clock.advance(LEASE + TICK)
    lapsed = lifecycle.lease_lost(running, now=hand.now)
    await hand.store.extend([fence(running)])

    answer = await hand.try_swap(running, lapsed, running.lease.until)

    assert not answer.written
    assert answer.job is not None
    assert answer.job.lease is not None
    assert hand.now + LEASE == answer.job.lease.until
    assert State.RUNNING is (await hand.get(running)).state


@pytest.mark.req("S-6", "S-5")
async def test_heartbeat_after_the_lapse_is_refused(hand: Hand, running: Job) -> None:
    hand.clock.advance(LEASE)
    lapsed = await hand.lapse(running)

    (renewal,) = await hand.store.extend([fence(running)])

    assert not renewal.held
    assert lapsed == await hand.get(running)


@pytest.mark.req("S-5")
@pytest.mark.parametrize("promoted", [False, True], ids=["retrying", "ready again"])
async def test_late_answer_counts_while_the_job_was_not_claimed_again(
    hand: Hand, running: Job, *, promoted: bool
) -> None:
    hand.clock.advance(LEASE)
    await hand.lapse(running)
    if promoted:
        hand.clock.advance(LEASE)
        await hand.store.promote(MANY)
    stored = await hand.get(running)
    assert running.lease is not None
    assert lifecycle.may_answer(stored, running.lease.token)

    done = await hand.swap(stored, DECISIONS["answer_late"](stored, hand.now))

    assert (State.COMPLETED, b'"late"', 1) == (done.state, done.result, done.attempt)
    (history,) = await hand.store.history([running.id])
    assert Event.RESUME in [edge.event for edge in history]
    assert [] == await hand.claim()


@pytest.mark.req("S-5")
async def test_late_answer_is_refused_once_the_job_was_claimed_again(
    hand: Hand, running: Job
) -> None:
    hand.clock.advance(LEASE)
    await hand.lapse(running)
    hand.clock.advance(LEASE)
    await hand.store.promote(MANY)
    stored = await hand.get(running)
    newer = await hand.take(running)

    answer = await hand.try_swap(stored, DECISIONS["answer_late"](stored, hand.now))

    assert Swapped(written=False, job=newer) == answer
    assert running.lease is not None
    assert not lifecycle.may_answer(newer, running.lease.token)


@pytest.mark.req("S-5")
async def test_answer_after_the_lease_ended_but_before_the_lapse_counts(
    hand: Hand, running: Job
) -> None:
    hand.clock.advance(10 * LEASE)

    done = await hand.complete(running)

    assert State.COMPLETED is done.state


@pytest.mark.req("S-10")
async def test_lapse_of_the_last_attempt_is_the_end(hand: Hand) -> None:
    running = await hand.run("last", max_attempts=1)
    hand.clock.advance(LEASE)

    dead = await hand.lapse(running)

    assert State.DEAD_LETTER is dead.state
    assert dead.failure is not None
    assert (FailureCategory.SYSTEM, "LEASE_EXPIRED") == (dead.failure.category, dead.failure.code)
