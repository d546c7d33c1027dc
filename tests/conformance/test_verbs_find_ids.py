"""``find`` by the beginning of an id, of UUIDs and of any other ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import State
from holdfast.store import Order, Search

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

IDS = {
    "a": "3f2a0000-0000-4000-8000-000000000001",
    "b": "3f2bffff-ffff-4fff-8fff-ffffffffffff",
    "c": "ffffffff-ffff-4fff-bfff-ffffffffffff",
    "d": "3f2a-order",
    "e": "order.17",
    "f": "0f000000-0000-4000-8000-000000000000",
}


@pytest.fixture
async def jobs(hand: Hand) -> Hand:
    for label, job_id in IDS.items():
        await hand.add_all(replace(hand.job(label, tags={"t": label}), id=job_id))
    return hand


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize(
    ("prefix", "labels"),
    [
        ("3", "abd"),
        ("3f2", "abd"),
        ("3f2a", "ad"),
        ("3f2a-", "d"),
        ("3f2a0000-", "a"),
        ("3f2a00000", ""),
        ("3F2A", ""),
        (IDS["b"], "b"),
        (IDS["b"] + "f", ""),
        ("f", "c"),
        ("ffffffff-ffff-4fff-bfff-ffffffffffff", "c"),
        ("0", "f"),
        ("order", "e"),
        ("order.17", "e"),
        ("%", ""),
        ("_", ""),
        ("é", ""),
    ],
)
async def test_jobs_are_found_by_the_beginning_of_their_id(
    jobs: Hand, prefix: str, labels: str, order: Order
) -> None:
    page = await jobs.store.find(Search(id_prefix=prefix, order=order))

    found = "".join(job.type for job in page.jobs)
    assert (labels if order is Order.CREATED_ASC else labels[::-1]) == found
    assert (len(labels), True, None) == (page.total, page.total_exact, page.next_cursor)


async def test_beginning_of_an_id_joins_other_filters_and_pages(jobs: Hand) -> None:
    (found,) = await jobs.store.get([IDS["a"]])
    assert found is not None
    await jobs.cancel(found)

    async def labels(**search: object) -> str:
        wanted = Search(id_prefix="3f2", order=Order.CREATED_ASC, **search)  # type: ignore[arg-type]
        page = await jobs.store.find(wanted)
        seen = [job.type for job in page.jobs]
        while page.next_cursor:
            page = await jobs.store.find(replace(wanted, cursor=page.next_cursor))
            seen += [job.type for job in page.jobs]
        return "".join(seen)

    assert "abd" == await labels(limit=1)
    assert "bd" == await labels(states=(State.SCHEDULED,))
    assert "abd" == await labels(states=(State.SCHEDULED, State.CANCELLED), limit=2)
    assert "b" == await labels(types=("b", "c"))
    assert "d" == await labels(tags={"t": "d"})
    assert "" == await labels(queues=("other",))
    assert "abd" == await labels(namespace="")
    assert "" == await labels(namespace="acme")
