"""The store itself: opening, closing, sharing, and its clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ValidationError
from holdfast.model.job import FailureCategory, State
from holdfast.model.policy import Retention
from holdfast.model.profiles import DOCUMENT, document_metadata, document_word
from holdfast.model.submission import Defaults
from holdfast.runtime.clock import ManualClock
from holdfast.store import Level, LimitRule, Search
from tests.conformance.conftest import SERVED
from tests.conformance.hand import MANY, TICK, Hand, fence, make
from tests.conformance.snapshot import snapshot
from tests.conformance.stores import NAMES, PLACES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store import Store
    from tests.conformance.stores import Place

LASTING = [pytest.param(n, marks=SERVED.get(n, ())) for n in NAMES if n != "memory"]


@pytest.fixture(params=LASTING)
def lasting(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty place of a store whose data outlives its process."""
    with PLACES[request.param](request) as place:
        yield place


@pytest.mark.req("S-11")
async def test_store_goes_by_its_clock(store: Store, clock: ManualClock) -> None:
    assert clock.now() == store.now()
    clock.advance(5)
    assert clock.now() == store.now()


async def test_closed_store_can_be_started_again(place: Place) -> None:
    store = place.open()
    await store.start()
    job = make("a", now=store.now())
    await store.add([job])
    await store.close()

    await store.start()

    try:
        assert [job.id] == [found.id for found in await store.get([job.id]) if found]
        await store.add([make("b", now=store.now())])
    finally:
        await store.close()


async def test_store_may_be_closed_twice_and_before_it_is_started(place: Place) -> None:
    await place.open(ManualClock()).close()

    store = await place.open(ManualClock()).start()
    await store.close()
    await store.close()


async def test_cancelled_call_ends_at_whatever_point_it_is(store: Store, hand: Hand) -> None:
    """A call that ignores cancellation keeps its caller alive for ever."""
    ended = 0
    for turns in range(60):
        call = asyncio.ensure_future(store.lock("name", "holder", timedelta(seconds=9)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if call.cancel():
            await asyncio.wait({call}, timeout=5)
            assert call.cancelled(), f"went on when cancelled at turn {turns}"
            ended += 1

    assert ended
    await hand.add("still usable")


@pytest.mark.req("S-2", "S-1")
async def test_everything_survives_a_restart(lasting: Place) -> None:
    clock = ManualClock()
    store = await lasting.open(clock).start()
    hand = Hand(store, clock)
    running = await hand.run("running", tags={"k": "v"}, idempotency_key="k")
    await hand.note(running, checkpoint=b"\x00half")
    await hand.fail(await hand.run("failed"), FailureCategory.PERMANENT)
    await hand.add("child", after=[running])
    await hand.add("later", delay=60)
    await store.configure("default", {"paused": True})
    await store.limit("queue:x", LimitRule(concurrency=1))
    jobs = (await store.find(Search())).jobs
    labels = {job.id: job.type for job in jobs}
    before = await snapshot(store, labels)
    await store.close()

    again = await lasting.open(clock).start()

    assert before == await snapshot(again, labels)
    await again.close()


@pytest.mark.req("S-1")
async def test_what_one_store_wrote_another_on_the_same_place_sees_at_once(
    lasting: Place,
) -> None:
    clock = ManualClock()
    one, two = [await lasting.open(clock).start() for _ in range(2)]
    here, there = Hand(one, clock), Hand(two, clock)

    job = await here.add("a")
    taken = await there.take(job)
    assert taken == await here.get(job)
    (renewal,) = await one.extend([fence(taken)])
    assert renewal.held
    await here.complete(taken)
    assert State.COMPLETED is (await there.get(job)).state
    await two.configure("default", {"paused": True})
    await here.add("b")
    assert [] == await here.claim()

    for store in (one, two):
        await store.close()


@pytest.mark.req("S-11")
async def test_worker_whose_clock_is_a_day_off_changes_nothing(hand: Hand) -> None:
    """Its decisions have its own times, but due times and leases go by the store's clock."""
    job = await hand.add("a", delay=60)
    running = await hand.run("b")
    wrong = ManualClock(hand.now)
    wrong.advance(86_400)

    early = Hand(hand.store, wrong)
    assert 0 == (await hand.store.promote(MANY)).count
    assert [] == await early.claim(types=("a",))
    assert [] == await hand.store.overdue(MANY)
    (renewal,) = await hand.store.extend([fence(running)])

    assert running.lease is not None
    assert running.lease.until == renewal.until
    assert State.DELAYED is (await hand.get(job)).state


@pytest.mark.req("L-1", "L-2", "L-4")
async def test_document_job_shows_its_own_words_along_its_life(hand: Hand) -> None:
    seen = []
    made = hand.job("doc", hold=True, defaults=Defaults(profile=DOCUMENT), lease=None)
    (job,) = await hand.add_all(made)
    seen.append(document_word(job))
    job = await hand.release(job)
    seen.append(document_word(job))
    job = await hand.take(job)
    seen.append(document_word(job))
    job = await hand.fail(job, message="page 3 is torn")
    seen.append(document_word(job))
    metadata = document_metadata(job)
    hand.clock.advance(1)
    await hand.store.promote(MANY)
    job = await hand.complete(await hand.take(job))
    seen.append(document_word(job))

    assert "document" == job.profile
    assert ["CREATED", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED"] == seen
    assert (1, 3, "page 3 is torn", "RETRYABLE") == (
        metadata.retry_count,
        metadata.max_retries,
        metadata.last_error,
        metadata.error_type,
    )


@pytest.mark.req("M-12", "M-13")
@pytest.mark.parametrize(
    "text",
    ["", "'; DROP TABLE job; --", "ü\u00df\u4e16\U0001f600", "a\nb\tc", "\\u0000 %s ?1 {} $1"],
    ids=["empty", "quotes", "wide", "control", "placeholders"],
)
async def test_text_of_every_kind_comes_back_as_it_was(hand: Hand, text: str) -> None:
    job = await hand.run("a", tags={"k": text}, payload=text)
    failed = await hand.fail(
        job,
        FailureCategory.PERMANENT,
        message=text,
        code=text,
        stack_trace=text,
        context={"k": text},
    )

    assert ({"k": text}, job.payload) == (failed.tags, (await hand.get(job)).payload)
    assert failed.failure is not None
    assert [text] * 3 == [
        failed.failure.message,
        failed.failure.code,
        failed.failure.stack_trace,
    ]
    assert {"k": text} == failed.failure.context


@pytest.mark.req("M-13")
async def test_times_are_kept_to_the_millisecond_at_least(hand: Hand) -> None:
    hand.clock.advance(7 * TICK)

    job = await hand.add("a", delay=1.001)

    assert hand.now == job.created_at
    assert hand.now + 1001 * TICK == job.due_at


async def test_empty_calls_answer_empty(store: Store) -> None:
    assert [] == await store.swap([])
    assert [] == await store.extend([])
    assert [] == await store.note([])
    assert [] == await store.delete([])
    assert [] == await store.history([])
    assert 0 == await store.prune(Retention(), MANY)


@pytest.mark.parametrize(
    ("settings", "field", "code"),
    [
        ({"pauesd": True}, "pauesd", "UNKNOWN"),
        ({"paused": True, "weight": 3}, "weight", "UNKNOWN"),
        ({"paused": 1}, "paused", "INVALID"),
        ({"ageing": 10}, "ageing", "INVALID"),
        ({"ageing": timedelta(0)}, "ageing", "INVALID"),
    ],
)
async def test_settings_that_no_queue_has_are_refused(
    store: Store, settings: dict[str, object], field: str, code: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        await store.configure("q", settings)

    assert [(field, code)] == [(fault.field, fault.code) for fault in refused.value.faults]
    assert [] == await store.queues()


@pytest.mark.parametrize("span", [timedelta(0), 10, None])
async def test_queue_is_closed_for_a_time_above_zero_and_only_where_stores_can(
    store: Store, span: object
) -> None:
    with pytest.raises(ValidationError) as refused:
        await store.configure("q", {"closed_for": span})

    code = "INVALID" if store.capabilities.closes_queues else "UNKNOWN"
    assert [("closed_for", code)] == [(each.field, each.code) for each in refused.value.faults]


@pytest.mark.req("S-13")
async def test_store_reports_on_itself_in_sentences_and_changes_nothing(hand: Hand) -> None:
    job = await hand.run("a")
    labels = {job.id: "a"}
    before = await snapshot(hand.store, labels)

    found = await hand.store.findings()

    names = [each.name for each in found]
    assert "durability" in names
    assert len(names) == len(set(names))
    assert all(each.text.endswith(".") for each in found)
    assert [] == [each for each in found if each.level is not Level.OK and not each.advice]
    assert before == await snapshot(hand.store, labels)
