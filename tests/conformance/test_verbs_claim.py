"""``claim``: who gets which job, in which order, under which lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import Encoding, Event, Priority, State
from tests.conformance.hand import LEASE, MANY, TICK

if TYPE_CHECKING:
    from tests.conformance.hand import Hand


@pytest.mark.req("S-4", "M-10")
async def test_claimed_job_is_running_under_a_lease_of_its_own_length(hand: Hand) -> None:
    added = await hand.add("a")

    taken = await hand.take(added, worker="w7", token="t7")

    assert State.RUNNING == taken.state
    assert taken.lease is not None
    assert ("t7", 1, "w7", hand.now + LEASE) == (
        taken.lease.token,
        taken.lease.version,
        taken.lease.worker,
        taken.lease.until,
    )
    assert 1 == taken.attempt
    assert hand.now == taken.started_at
    assert added.revision + 1 == taken.revision
    assert taken == await hand.get(added)


@pytest.mark.req("S-4")
async def test_leased_job_is_invisible_to_other_claims_even_after_its_lease_ended(
    hand: Hand,
) -> None:
    await hand.run("a")

    assert [] == await hand.claim()
    hand.clock.advance(LEASE + TICK)
    assert [] == await hand.claim()


@pytest.mark.req("M-12")
@pytest.mark.parametrize(
    ("payload", "encoding"),
    [
        ({"text": "Grüße \U0001f600", "n": 2**53 + 1, "deep": [[None, True, 1.5e300]]}, "json"),
        (b"\x00\xff\xfe raw", "bytes"),
        ("", "json"),
        (b"", "bytes"),
    ],
    ids=["json", "binary", "empty string", "no bytes"],
)
async def test_claim_brings_the_payload_back_byte_for_byte(
    hand: Hand, payload: object, encoding: str
) -> None:
    made = hand.job("a", payload=payload)
    await hand.add_all(made)

    (taken,) = await hand.claim()

    assert made.payload == taken.payload
    assert Encoding(encoding) is taken.encoding


@pytest.mark.req("S-4")
async def test_jobs_of_one_claim_are_each_as_they_are_stored(hand: Hand) -> None:
    """A store may read fields that jobs share once, but must not mix up the others."""
    kind = {"type": "mail"}
    await hand.add("plain", **kind)
    await hand.add("plain too", **kind)
    later = await hand.add("later", **kind, delay=TICK)
    await hand.add("later too", **kind, delay=TICK)
    hand.clock.advance(TICK)
    await hand.add("a tick after", **kind)
    parent = await hand.run("parent")
    await hand.add("child", **kind, after=[parent])
    await hand.complete(parent)
    await hand.settle_dependents()
    await hand.add("different", **kind, tags={"a": "b"}, correlation_id="c")
    await hand.add("urgent", **kind, priority=Priority.HIGH)
    failed = await hand.fail(await hand.take(await hand.add("again", **kind, queue="other")))
    assert failed.due_at is not None
    assert later.due_at is not None
    hand.clock.set(max(failed.due_at, later.due_at))
    await hand.store.promote(MANY)

    taken = await hand.claim(MANY, queues=("default", "other"))

    assert 9 == len(taken)
    assert taken == await hand.get_all(*taken)


@pytest.mark.req("M-8")
async def test_claim_brings_the_checkpoint_of_the_attempt_before(hand: Hand) -> None:
    running = await hand.run("a")
    await hand.note(running, checkpoint=b"\x00 half way \xff")
    failed = await hand.fail(running)
    assert failed.due_at is not None
    hand.clock.set(failed.due_at)
    await hand.store.promote(MANY)

    (again,) = await hand.claim()

    assert b"\x00 half way \xff" == again.checkpoint


@pytest.mark.req("M-4")
async def test_lower_priority_number_is_served_first(hand: Hand) -> None:
    levels = [Priority.LOW, Priority.CRITICAL, Priority.BULK, Priority.NORMAL, Priority.HIGH]
    for level in levels:
        await hand.add(level.name, priority=level)

    assert ["CRITICAL", "HIGH", "NORMAL", "LOW", "BULK"] == await hand.drain()


@pytest.mark.req("M-4", "S-3")
async def test_jobs_of_one_priority_are_served_in_the_order_of_submission(hand: Hand) -> None:
    names = [f"job{n:02}" for n in range(12)]
    await hand.add_all(*(hand.job(name) for name in names[:6]))
    for name in names[6:]:
        await hand.add(name)

    assert names == await hand.drain()


@pytest.mark.req("M-4", "S-3")
async def test_one_claim_of_many_answers_in_the_order_of_service(hand: Hand) -> None:
    await hand.add("late", priority=Priority.LOW)
    await hand.add_all(*(hand.job(f"n{n}") for n in range(4)))
    await hand.add("first", priority=Priority.HIGH)

    taken = await hand.claim(5)

    assert ["first", "n0", "n1", "n2", "n3"] == [job.type for job in taken]


async def test_claim_takes_at_most_its_limit(hand: Hand) -> None:
    await hand.add_all(*(hand.job(f"n{n}") for n in range(5)))

    assert 2 == len(await hand.claim(2))
    assert 3 == len(await hand.claim(4))
    assert [] == await hand.claim(4)


async def test_queues_are_served_in_the_order_given_whatever_the_priority(hand: Hand) -> None:
    await hand.add("urgent", queue="b", priority=Priority.CRITICAL)
    await hand.add("calm", queue="a", priority=Priority.BULK)
    await hand.add("other", queue="c", priority=Priority.CRITICAL)

    taken = await hand.claim(5, queues=("a", "b"))

    assert ["calm", "urgent"] == [job.type for job in taken]


async def test_limit_is_shared_by_the_queues(hand: Hand) -> None:
    await hand.add_all(*(hand.job(f"{q}{n}", queue=q) for n in range(2) for q in "ab"))

    taken = await hand.claim(3, queues=("b", "a"))

    assert ["b0", "b1", "a0"] == [job.type for job in taken]


@pytest.mark.req("S-14")
async def test_claim_takes_only_types_it_asked_for_and_others_wait_in_place(hand: Hand) -> None:
    await hand.add_all(*(hand.job(name) for name in ("x", "a", "y", "b")))

    assert ["a", "b"] == [job.type for job in await hand.claim(9, types=("a", "b"))]
    assert ["x", "y"] == await hand.drain()


@pytest.mark.req("S-14")
async def test_claim_for_no_types_takes_nothing(hand: Hand) -> None:
    await hand.add("a")

    assert [] == await hand.claim(9, types=())


async def test_paused_queue_is_passed_over_until_it_is_resumed(hand: Hand) -> None:
    await hand.add("a", queue="a")
    await hand.add("b", queue="b")
    await hand.store.configure("a", {"paused": True})

    assert ["b"] == await hand.drain("a", "b")
    await hand.store.configure("a", {"paused": False})
    assert ["a"] == await hand.drain("a", "b")


async def test_only_ready_jobs_are_claimed(hand: Hand) -> None:
    parent = await hand.add("parent", queue="other")
    await hand.add("held", hold=True)
    await hand.add("waiting", after=[parent])
    await hand.add("delayed", delay=10)
    await hand.run("running")
    await hand.complete(await hand.run("done"))
    await hand.fail(await hand.run("retrying"))
    await hand.cancel(await hand.add("cancelled"))

    assert [] == await hand.claim(MANY)


@pytest.mark.req("M-10", "S-10")
async def test_every_claim_has_a_higher_lease_version_and_attempt(hand: Hand) -> None:
    job = await hand.add("a", max_attempts=3, backoff={"initial_delay": 0})
    seen = []
    for _ in range(3):
        taken = await hand.take(job)
        seen.append((taken.attempt, taken.lease_version, taken.attempt_id))
        job = await hand.fail(taken)
        await hand.store.promote(MANY)

    assert [(n, n, f"{job.id}.{n}") for n in (1, 2, 3)] == seen
    assert State.DEAD_LETTER is job.state


@pytest.mark.req("S-15", "M-3")
async def test_claim_is_in_the_history_with_attempt_version_and_worker(hand: Hand) -> None:
    taken = await hand.run("a")

    (history,) = await hand.store.history([taken.id])

    assert Event.CLAIM is history[-1].event
    assert (State.SCHEDULED, State.RUNNING, hand.now, 1, 1, "w1") == (
        history[-1].from_state,
        history[-1].to_state,
        history[-1].at,
        history[-1].attempt,
        history[-1].lease_version,
        history[-1].worker,
    )


async def test_claimed_jobs_come_without_a_trail(hand: Hand) -> None:
    taken = await hand.run("a")

    assert () == taken.trail
    assert () == (await hand.get(taken)).trail


@pytest.mark.req("M-13")
async def test_every_field_of_a_job_comes_back_from_a_claim(hand: Hand) -> None:
    made = hand.job(
        "a",
        queue="q",
        priority="HIGH",
        timeout=7,
        lifetime=3600,
        max_attempts=9,
        backoff={"strategy": "LINEAR", "initial_delay": 2, "max_delay": 9, "jitter": True},
        retry_timeouts=False,
        retry_crashes=False,
        idempotency_key="k",
        correlation_id="c",
        tags={"colour": "blue", "größe": "ü"},
        callback_url="https://example.org/hook",
        limit_key="tenant",
    )
    await hand.add_all(made)

    (taken,) = await hand.claim(queues=("q",))

    changed = {
        "state", "revision", "attempt", "updated_at", "started_at", "lease", "trail",
    }  # fmt: skip
    for name in made.__struct_fields__:
        if name not in changed:
            assert (name, getattr(made, name)) == (name, getattr(taken, name))
