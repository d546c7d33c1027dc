"""``extend`` and ``note``: what a running job may do under its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import Encoding, LogLine, Progress
from holdfast.store import EventKind, Fence, JobNote, Renewal
from holdfast.store.contract import MAX_LOG_LINES
from tests.conformance.hand import LEASE, MANY, TICK, fence, job_id
from tests.conformance.snapshot import NO_WAIT

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand


@pytest.fixture
async def running(hand: Hand) -> Job:
    """A job that has just been claimed."""
    return await hand.run("a")


async def _superseded(hand: Hand, job: Job) -> Job:
    """Take the job from its holder; return it as the new holder has it."""
    await hand.give_back(job)
    return await hand.take(job, worker="w2")


@pytest.mark.req("S-5", "S-11")
async def test_renewed_lease_ends_its_length_from_now(hand: Hand, running: Job) -> None:
    hand.clock.advance(10)

    renewals = await hand.store.extend([fence(running)])

    assert [Renewal(held=True, until=hand.now + LEASE)] == renewals
    stored = await hand.get(running)
    assert stored.lease is not None
    assert hand.now + LEASE == stored.lease.until
    assert running.revision == stored.revision


@pytest.mark.req("S-5")
async def test_lease_that_ended_but_was_not_taken_is_renewed(hand: Hand, running: Job) -> None:
    hand.clock.advance(LEASE + TICK)

    (renewal,) = await hand.store.extend([fence(running)])

    assert renewal.held
    assert [] == await hand.store.overdue(MANY)


@pytest.mark.req("A-12")
@pytest.mark.parametrize("force", [False, True])
async def test_renewal_contains_the_cancel_request(
    hand: Hand, running: Job, *, force: bool
) -> None:
    requested = await hand.cancel(running, reason="enough", force=force)

    (renewal,) = await hand.store.extend([fence(running)])

    assert renewal.held
    assert requested.cancel is not None
    assert ("enough", force) == (requested.cancel.reason, requested.cancel.force)
    assert requested.cancel == renewal.cancel


@pytest.mark.req("S-5")
async def test_stale_renewal_changes_nothing(hand: Hand, running: Job) -> None:
    newer = await _superseded(hand, running)
    hand.clock.advance(1)

    renewals = await hand.store.extend([fence(running), Fence(running.id, "")])

    assert [Renewal(held=False)] * 2 == renewals
    assert newer == await hand.get(running)


@pytest.mark.req("S-5")
@pytest.mark.parametrize("how", ["completed", "lapsed", "given back", "unknown"])
async def test_only_running_jobs_are_renewed(hand: Hand, running: Job, how: str) -> None:
    proof = fence(running)
    match how:
        case "completed":
            await hand.complete(running)
        case "lapsed":
            await hand.lapse(running)
        case "given back":
            await hand.give_back(running)
        case _:
            proof = Fence(job_id("nobody"), proof.token)
    before = await hand.get(running)

    assert [Renewal(held=False)] == await hand.store.extend([proof])
    assert before == await hand.get(running)


@pytest.mark.req("S-5")
async def test_renewals_answer_in_place(hand: Hand, running: Job) -> None:
    other = await hand.run("b", lease=7)
    stranger = Fence(job_id("nobody"), "t")

    renewals = await hand.store.extend([fence(other), stranger, fence(running)])

    assert [True, False, True] == [renewal.held for renewal in renewals]
    assert [7, 30] == [(renewal.until - hand.now).seconds for renewal in renewals if renewal.until]


@pytest.mark.req("A-12")
async def test_cancel_requests_are_aligned_with_the_ids(hand: Hand, running: Job) -> None:
    other = await hand.run("b")
    requested = await hand.cancel(other, reason="enough", force=True)
    ids = [running.id, other.id, job_id("nobody"), other.id]

    assert [None, requested.cancel, None, requested.cancel] == await hand.store.cancels(ids)
    assert [] == await hand.store.cancels([])


# --- note -----------------------------------------------------------------------------------


@pytest.mark.req("A-6", "M-8")
async def test_progress_checkpoint_and_log_are_kept(hand: Hand, running: Job) -> None:
    progress = Progress(40, "half\n'way' ü", hand.now)
    line = LogLine(hand.now, "info", "read 3 rows", 1, {"rows": "3"})

    await hand.note(running, progress=progress, checkpoint=b"\x00\xff", log=line)

    stored = await hand.get(running)
    assert (progress, b"\x00\xff") == (stored.progress, stored.checkpoint)
    assert [[line]] == await hand.store.logs([running.id])
    assert running.revision == stored.revision


async def test_note_of_one_thing_leaves_the_others(hand: Hand, running: Job) -> None:
    progress = Progress(1, "", hand.now)
    await hand.note(running, progress=progress, checkpoint=b"c")

    await hand.note(running, log=LogLine(hand.now, "info", "x"))
    await hand.note(running, checkpoint=b"")

    stored = await hand.get(running)
    assert (progress, b"") == (stored.progress, stored.checkpoint)


async def test_note_of_a_payload_replaces_it_for_the_next_attempt(hand: Hand, running: Job) -> None:
    await hand.note(running, payload=b'{"step":1}')

    await hand.note(running, payload='{"step":"zwölf"}'.encode())

    stored = await hand.get(running)
    assert replace(running, payload='{"step":"zwölf"}'.encode()) == stored
    failed = await hand.fail(running)
    assert failed.due_at is not None
    hand.clock.set(failed.due_at)
    await hand.store.promote(MANY)
    (again,) = await hand.claim()
    assert ('{"step":"zwölf"}'.encode(), 2) == (again.payload, again.attempt)


async def test_note_of_bytes_replaces_a_payload_of_bytes(hand: Hand) -> None:
    running = await hand.run("b", payload=b"\x00")

    await hand.note(running, payload=b"\x00\xff", encoding=Encoding.BYTES)

    assert b"\x00\xff" == (await hand.get(running)).payload
    completed = await hand.complete(running)
    assert b"\x00\xff" == (await hand.get(completed)).payload


@pytest.mark.req("A-6")
async def test_progress_is_an_event(hand: Hand, running: Job) -> None:
    start = (await hand.store.events(None, 0, NO_WAIT)).cursor
    progress = Progress(40, "half", hand.now)

    await hand.note(running, progress=progress)
    await hand.note(running, checkpoint=b"c", log=LogLine(hand.now, "info", "x"))

    page = await hand.store.events(start, 10, NO_WAIT)
    assert [(running.id, "a", "default", EventKind.PROGRESS, progress, None)] == [
        (e.job_id, e.type, e.queue, e.kind, e.progress, e.transition) for e in page.events
    ]


@pytest.mark.req("S-5", "M-8")
async def test_stale_note_keeps_nothing(hand: Hand, running: Job) -> None:
    newer = await _superseded(hand, running)
    notes = {
        "progress": Progress(99, "zombie", hand.now),
        "checkpoint": b"zombie",
        "log": LogLine(hand.now, "info", "zombie"),
    }
    start = (await hand.store.events(None, 0, NO_WAIT)).cursor

    kept = await hand.store.note(
        [JobNote(fence=fence(running), **notes), JobNote(fence=Fence(running.id, ""), **notes)]
    )

    assert [False, False] == kept
    assert newer == await hand.get(running)
    assert [[]] == await hand.store.logs([running.id])
    assert () == (await hand.store.events(start, 10, NO_WAIT)).events


@pytest.mark.req("S-5")
@pytest.mark.parametrize("how", ["completed", "lapsed", "given back"])
async def test_only_running_jobs_are_noted(hand: Hand, running: Job, how: str) -> None:
    move = {"completed": hand.complete, "lapsed": hand.lapse, "given back": hand.give_back}[how]
    await move(running)

    assert [False] == await hand.store.note([JobNote(fence=fence(running), checkpoint=b"late")])
    assert (await hand.get(running)).checkpoint is None


async def test_note_under_an_ended_but_newest_lease_is_kept(hand: Hand, running: Job) -> None:
    hand.clock.advance(2 * LEASE)

    assert [True] == await hand.store.note([JobNote(fence=fence(running), checkpoint=b"c")])


async def test_notes_answer_in_place_and_stand_alone(hand: Hand, running: Job) -> None:
    other = await hand.run("b")
    stranger = Fence(job_id("nobody"), "t")

    kept = await hand.store.note(
        [JobNote(fence=f, checkpoint=b"c") for f in (fence(other), stranger, fence(running))]
    )

    assert [True, False, True] == kept


async def test_only_the_newest_log_lines_are_kept_in_order(hand: Hand, running: Job) -> None:
    def line(n: int) -> JobNote:
        return JobNote(fence=fence(running), log=LogLine(hand.now, "info", str(n)))

    await hand.store.note([line(n) for n in range(MAX_LOG_LINES)])
    await hand.store.note([line(n) for n in range(MAX_LOG_LINES, MAX_LOG_LINES + 3)])

    kept = [each.message for each in (await hand.store.logs([running.id]))[0]]
    assert [str(n) for n in range(3, MAX_LOG_LINES + 3)] == kept


async def test_logs_answer_in_place_and_empty_for_unknown_ids(hand: Hand, running: Job) -> None:
    other = await hand.run("other")
    one, two = (LogLine(hand.now, "info", text) for text in ("one", "two"))
    await hand.note(running, log=one)
    await hand.note(other, log=two)
    await hand.note(running, log=two)

    found = await hand.store.logs([other.id, job_id("nobody"), running.id, other.id])

    assert [[two], [], [one, two], [two]] == found
    assert [] == await hand.store.logs([])


async def test_logs_of_all_attempts_stay_until_the_job_goes(hand: Hand, running: Job) -> None:
    await hand.note(running, log=LogLine(hand.now, "info", "one", 1))
    again = await _superseded(hand, running)
    await hand.note(again, log=LogLine(hand.now, "info", "two", 1))
    await hand.complete(again)
    (lines,) = await hand.store.logs([running.id])
    assert ["one", "two"] == [line.message for line in lines]

    await hand.store.delete([running.id])

    assert [[]] == await hand.store.logs([running.id])
