"""``get``, ``history``, ``find``, ``failures``: what can be read about jobs, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ValidationError
from holdfast.model.job import FailureCategory, Priority, State
from holdfast.store import FailureSearch, Order, Search
from tests.conformance.hand import MANY, TICK, job_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.hand import Hand


async def _found(hand: Hand, **search: object) -> list[str]:
    page = await hand.store.find(Search(order=Order.CREATED_ASC, **search))
    assert len(page.jobs) == page.total
    assert page.total_exact
    return [job.type for job in page.jobs]


async def _pages(hand: Hand, order: Order, limit: int) -> list[list[str]]:
    pages = []
    page = await hand.store.find(Search(order=order, limit=limit))
    pages.append([job.type for job in page.jobs])
    while page.next_cursor is not None:
        page = await hand.store.find(Search(order=order, limit=limit, cursor=page.next_cursor))
        pages.append([job.type for job in page.jobs])
    return pages


@pytest.mark.req("A-5", "M-1")
async def test_get_answers_in_place_with_none_for_unknown_ids(hand: Hand) -> None:
    a, b = await hand.add_all(hand.job("a"), hand.job("b"))

    assert [b, None, a, a] == await hand.store.get([b.id, job_id("nobody"), a.id, a.id])
    assert [] == await hand.store.get([])
    assert [None] == await hand.store.get(["no uuid at all \u00fc"])


@pytest.mark.req("A-5")
async def test_histories_answer_in_place_and_empty_for_unknown_ids(hand: Hand) -> None:
    a = await hand.run("a")
    b = await hand.add("b")

    histories = await hand.store.history([b.id, job_id("nobody"), a.id])

    assert [2, 0, 3] == list(map(len, histories))
    assert [[]] == await hand.store.logs([job_id("nobody")])


@pytest.mark.req("A-7")
async def test_jobs_are_found_in_three_orders(hand: Hand) -> None:
    for name in "abc":
        await hand.add(name)
    hand.clock.advance(1)
    await hand.cancel(await hand.get(hand.job("a")))

    assert [["a", "b", "c"]] == await _pages(hand, Order.CREATED_ASC, 9)
    assert [["c", "b", "a"]] == await _pages(hand, Order.CREATED_DESC, 9)
    assert [["a", "c", "b"]] == await _pages(hand, Order.UPDATED_DESC, 9)


@pytest.mark.req("A-7")
@pytest.mark.parametrize("order", Order)
async def test_pages_cover_everything_once(hand: Hand, order: Order) -> None:
    names = [f"n{n}" for n in range(7)]
    await hand.add_all(*(hand.job(name) for name in names))

    pages = await _pages(hand, order, 3)

    assert [3, 3, 1] == list(map(len, pages))
    assert names == sorted(name for page in pages for name in page)


@pytest.mark.req("A-7")
@pytest.mark.parametrize("order", Order)
async def test_full_last_page_has_no_cursor(hand: Hand, order: Order) -> None:
    await hand.add_all(*(hand.job(f"n{n}") for n in range(4)))

    assert [2, 2] == list(map(len, await _pages(hand, order, 2)))


@pytest.mark.req("A-7")
async def test_every_filter_chooses(hand: Hand) -> None:
    await hand.add("a", queue="q", tags={"k": "v", "l": "w"}, correlation_id="c")
    hand.clock.advance(1)
    second = hand.now
    await hand.add("b", priority=Priority.HIGH, tags={"k": "v"})
    hand.clock.advance(1)
    third = hand.now
    await hand.cancel(await hand.add("c", tags={"k": "x"}))

    assert ["a", "c"] == await _found(hand, types=("a", "c"))
    assert ["a"] == await _found(hand, queues=("q",))
    assert ["c"] == await _found(hand, states=(State.CANCELLED,))
    assert ["a", "b"] == await _found(hand, states=(State.SCHEDULED, State.RUNNING))
    assert ["b"] == await _found(hand, priorities=(1,))
    assert ["a", "b"] == await _found(hand, tags={"k": "v"})
    assert ["a"] == await _found(hand, tags={"k": "v", "l": "w"})
    assert ["a"] == await _found(hand, correlation_id="c")
    assert ["b", "c"] == await _found(hand, created_after=second)
    assert ["a"] == await _found(hand, created_before=second)
    assert ["b"] == await _found(hand, created_after=second, created_before=third)
    assert ["c"] == await _found(hand, updated_after=third)
    assert [] == await _found(hand, types=("a",), priorities=(1,))
    assert ["a", "b", "c"] == await _found(hand)


@pytest.mark.req("A-7")
async def test_bounds_of_time_are_exact(hand: Hand) -> None:
    job = await hand.add("a")

    assert ["a"] == await _found(hand, created_after=job.created_at)
    assert [] == await _found(hand, created_after=job.created_at + TICK)
    assert [] == await _found(hand, created_before=job.created_at)
    assert ["a"] == await _found(hand, created_before=job.created_at + TICK)
    assert ["a"] == await _found(hand, updated_after=job.updated_at)
    assert [] == await _found(hand, updated_after=job.updated_at + TICK)


@pytest.mark.req("A-7")
async def test_tags_are_compared_whole(hand: Hand) -> None:
    await hand.add("a", tags={"k": "v%", "größe": "ü'\""})

    assert ["a"] == await _found(hand, tags={"größe": "ü'\""})
    for other in ({"k": "v"}, {"k": "v_"}, {"K": "v%"}, {"k": ""}, {"v%": "k"}):
        assert [] == await _found(hand, tags=other)


@pytest.mark.req("A-7")
async def test_filters_hold_on_every_page_and_total_counts_all_matches(hand: Hand) -> None:
    await hand.add_all(*(hand.job(f"n{n}", priority=n % 2) for n in range(8)))

    search = Search(priorities=(1,), limit=3, order=Order.CREATED_ASC)
    first = await hand.store.find(search)
    second = await hand.store.find(
        Search(priorities=(1,), limit=3, order=Order.CREATED_ASC, cursor=first.next_cursor)
    )

    assert ["n1", "n3", "n5"] == [job.type for job in first.jobs]
    assert ["n7"] == [job.type for job in second.jobs]
    assert (4, 4) == (first.total, second.total)


@pytest.mark.req("A-7")
@pytest.mark.parametrize("order", Order)
async def test_paging_neither_skips_nor_repeats_while_jobs_are_added_and_deleted(
    hand: Hand, order: Order
) -> None:
    jobs = await hand.add_all(*(hand.job(f"n{n}") for n in range(8)))
    first = await hand.store.find(Search(order=order, limit=3))
    seen = [job.type for job in first.jobs]
    there = {job.type: job for job in jobs}
    # A listed job and an unlisted one are deleted, and new ones are added.
    gone = [there[seen[-1]], next(job for name, job in there.items() if name not in seen)]
    for job in gone:
        await hand.cancel(job)
    await hand.store.delete([job.id for job in gone])
    await hand.add("newcomer")

    cursor = first.next_cursor
    while cursor is not None:
        page = await hand.store.find(Search(order=order, limit=3, cursor=cursor))
        seen += [job.type for job in page.jobs]
        cursor = page.next_cursor

    stayed = [name for name in there if there[name] not in gone]
    assert len(seen) == len(set(seen))
    assert set(stayed) <= set(seen)


@pytest.mark.req("A-7")
async def test_job_that_moved_stays_ahead_of_an_updated_cursor(hand: Hand) -> None:
    jobs = await hand.add_all(*(hand.job(f"n{n}") for n in range(4)))
    first = await hand.store.find(Search(order=Order.UPDATED_DESC, limit=2))
    await hand.cancel(jobs[0])

    second = await hand.store.find(
        Search(order=Order.UPDATED_DESC, limit=2, cursor=first.next_cursor)
    )

    assert ["n3", "n2"] == [job.type for job in first.jobs]
    assert ["n1"] == [job.type for job in second.jobs]


@pytest.mark.req("A-7")
@pytest.mark.parametrize("garbage", ["", "x", "!!!", "QQ", "A" * 500, "Q1JFQVRFRF9BU0M", "ü", "1"])
async def test_garbage_is_no_cursor(hand: Hand, garbage: str) -> None:
    await hand.add("a")

    with pytest.raises(ValidationError):
        await hand.store.find(Search(cursor=garbage))
    with pytest.raises(ValidationError):
        await hand.store.failures(FailureSearch(cursor=garbage))


@pytest.mark.req("A-7")
async def test_cursor_of_another_order_is_refused(hand: Hand) -> None:
    await hand.add_all(*(hand.job(f"n{n}") for n in range(3)))
    page = await hand.store.find(Search(order=Order.CREATED_ASC, limit=1))

    for order in (Order.CREATED_DESC, Order.UPDATED_DESC):
        with pytest.raises(ValidationError):
            await hand.store.find(Search(order=order, cursor=page.next_cursor))
    with pytest.raises(ValidationError):
        await hand.store.failures(FailureSearch(cursor=page.next_cursor))


async def test_found_jobs_are_whole_but_without_a_trail(hand: Hand) -> None:
    job = await hand.run("a", tags={"k": "v"})

    page = await hand.store.find(Search())

    assert (job,) == page.jobs


# --- failures -------------------------------------------------------------------------------


async def _fail(hand: Hand, label: str, category: FailureCategory, code: str) -> None:
    running = await hand.run(label, max_attempts=1)
    await hand.fail(running, category, code=code)
    hand.clock.advance(1)


@pytest.fixture
async def troubled(hand: Hand) -> Sequence[str]:
    """Five jobs that failed, one a second."""
    await _fail(hand, "a", FailureCategory.PERMANENT, "BAD")
    await _fail(hand, "b", FailureCategory.TEMPORARY, "BUSY")
    await _fail(hand, "c", FailureCategory.TIMEOUT, "SLOW")
    await hand.fail(await hand.run("retrying"))
    await hand.cancel(await hand.add("cancelled"))
    await hand.complete(await hand.run("fine"))
    await _fail(hand, "d", FailureCategory.PERMANENT, "BAD")
    return ("d", "c", "b", "a")


@pytest.mark.req("A-15")
async def test_failures_come_newest_first_with_counts_over_all(
    hand: Hand, troubled: Sequence[str]
) -> None:
    page = await hand.store.failures(FailureSearch())

    assert list(troubled) == [job.type for job in page.jobs]
    assert (4, None) == (page.total, page.next_cursor)
    assert {"PERMANENT": 2, "TEMPORARY": 1, "TIMEOUT": 1} == page.by_category
    assert {"BAD": 2, "BUSY": 1, "SLOW": 1} == page.by_code
    assert dict.fromkeys("abcd", 1) == page.by_type


@pytest.mark.req("A-15")
async def test_failures_are_paged_while_counts_stay_whole(
    hand: Hand, troubled: Sequence[str]
) -> None:
    seen: list[str] = []
    cursor = None
    for _ in range(2):
        page = await hand.store.failures(FailureSearch(limit=2, cursor=cursor))
        seen += [job.type for job in page.jobs]
        cursor = page.next_cursor
        assert (4, 2) == (page.total, page.by_code["BAD"])

    assert list(troubled) == seen
    assert cursor is None


@pytest.mark.req("A-15")
async def test_failures_of_one_instant_are_paged_without_loss(hand: Hand) -> None:
    for name in "abc":
        await hand.fail(await hand.run(name), FailureCategory.PERMANENT)

    first = await hand.store.failures(FailureSearch(limit=2))
    second = await hand.store.failures(FailureSearch(limit=2, cursor=first.next_cursor))

    assert ["c", "b", "a"] == [job.type for job in (*first.jobs, *second.jobs)]


@pytest.mark.req("A-15")
async def test_failures_are_filtered(hand: Hand, troubled: Sequence[str]) -> None:
    async def found(**search: object) -> list[str]:
        page = await hand.store.failures(FailureSearch(limit=MANY, **search))
        assert len(page.jobs) == page.total == sum(page.by_type.values())
        return [job.type for job in page.jobs]

    (c,) = await hand.get_all(hand.job("c"))
    assert c.failure is not None
    assert c.failure.at is not None
    assert ["d", "a"] == await found(states=(State.FAILED,))
    assert ["d", "a"] == await found(categories=(FailureCategory.PERMANENT,))
    assert ["b"] == await found(code="BUSY")
    assert ["b", "a"] == await found(types=("a", "b"))
    assert [] == await found(queues=("other",))
    assert ["d", "c"] == await found(after=c.failure.at)
    assert ["b", "a"] == await found(before=c.failure.at)
    assert ["retrying"] == await found(states=(State.RETRYING,))
    assert ["cancelled"] == await found(states=(State.CANCELLED,))


@pytest.mark.req("A-15")
async def test_job_that_completed_after_a_failure_has_none(hand: Hand) -> None:
    running = await hand.run("a", backoff={"initial_delay": 0})
    await hand.fail(running)
    await hand.store.promote(MANY)

    done = await hand.complete(await hand.take(running))

    assert done.failure is None
    assert 0 == (await hand.store.failures(FailureSearch(states=tuple(State)))).total


@pytest.mark.req("A-7")
@pytest.mark.parametrize("order", Order)
async def test_namespace_limits_a_search_to_its_queues(hand: Hand, order: Order) -> None:
    queues = {"a": "acme/q", "b": "acme/r", "c": "acme.b/q", "d": "acm/q", "e": "q"}
    await hand.add_all(*(hand.job(name, queue=queue) for name, queue in queues.items()))
    await hand.cancel(await hand.get(hand.job("b")))
    await hand.claim(queues=["acme/q"])

    async def found(**more: object) -> list[str]:
        page = await hand.store.find(Search(order=order, **more))
        assert page.total == len(page.jobs)
        return sorted(job.type for job in page.jobs)

    assert ["a", "b"] == await found(namespace="acme")
    assert ["c"] == await found(namespace="acme.b")
    assert ["e"] == await found(namespace="")
    assert [] == await found(namespace="nobody")
    assert ["a", "b", "c", "d", "e"] == await found()
    assert ["b"] == await found(namespace="acme", states=(State.CANCELLED,))
    assert ["a"] == await found(namespace="acme", states=(State.RUNNING,))
    assert ["a"] == await found(namespace="acme", queues=("acme/q",))
    assert [] == await found(namespace="acme", queues=("acm/q",))


@pytest.mark.req("A-7")
@pytest.mark.parametrize("order", Order)
async def test_pages_of_a_namespace_cover_it_once(hand: Hand, order: Order) -> None:
    names = [f"n{n}" for n in range(7)]
    for name in names:
        await hand.add_all(hand.job(name, queue="acme/q"), hand.job(f"x{name}", queue="q"))

    found: list[str] = []
    page = await hand.store.find(Search(order=order, limit=3, namespace="acme"))
    found += [job.type for job in page.jobs]
    while page.next_cursor is not None:
        page = await hand.store.find(
            Search(order=order, limit=3, namespace="acme", cursor=page.next_cursor)
        )
        found += [job.type for job in page.jobs]

    assert names == sorted(found)
    assert 7 == page.total


@pytest.mark.req("A-7")
async def test_deleted_jobs_leave_the_list_of_their_namespace(hand: Hand) -> None:
    job = await hand.cancel(await hand.add("a", queue="acme/q"))
    await hand.add("b", queue="acme/q")

    await hand.store.delete([job.id])

    page = await hand.store.find(Search(namespace="acme"))
    assert ["b"] == [each.type for each in page.jobs]


@pytest.mark.req("A-7")
async def test_large_contents_are_left_out_on_request(hand: Hand) -> None:
    text = "x" * 5000
    small = await hand.complete(await hand.run("small", payload="12"), b'"34"')
    large = await hand.complete(await hand.run("large", payload=text), b"7" * 6000)
    running = await hand.run("running")
    await hand.note(running, checkpoint=b"y" * 7000)

    whole = await hand.store.find(Search())
    page = await hand.store.find(Search(most_bytes=4999))

    jobs = {job.id: job for job in page.jobs}
    assert [large.id] == list(page.left_out)
    assert 6000 <= page.left_out[large.id] < 10_000  # more when it is encrypted
    assert {} == dict(whole.left_out)
    assert (b'"12"', b'"34"') == (jobs[small.id].payload, jobs[small.id].result)
    assert (b"", None) == (jobs[large.id].payload, jobs[large.id].result)
    assert jobs[running.id].checkpoint is None
    assert [b"y" * 7000] == [job.checkpoint for job in whole.jobs if job.id == running.id]


@pytest.mark.req("A-7")
async def test_failures_of_a_namespace_are_listed_without_large_payloads(hand: Hand) -> None:
    for name, queue in {"a": "acme/q", "b": "q", "c": "acme.b/q"}.items():
        await hand.add(name, queue=queue, payload=b'"' + b"x" * 50 + b'"', max_attempts=1)
        (job,) = await hand.claim(queues=[queue])
        await hand.fail(job)

    page = await hand.store.failures(FailureSearch(namespace="acme", most_bytes=20))
    plain = await hand.store.failures(FailureSearch(namespace=""))

    assert [("a", b"")] == [(job.type, job.payload) for job in page.jobs]
    assert (1, {"a": 1}) == (page.total, page.by_type)
    assert ["b"] == [job.type for job in plain.jobs]
