"""Open keys of deleted jobs: listed and written by what copies one store to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.store import Added, AddStatus, HeldKey, PortableStore
from tests.conformance.hand import MANY

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand

WINDOW = 60


def _keyed(hand: Hand, label: str, key: str) -> Job:
    return hand.job(label, type="a", payload=1, idempotency_key=key, idempotency_window=WINDOW)


@pytest.mark.req("M-2")
async def test_open_keys_of_deleted_jobs_are_listed_page_by_page_and_adopted(hand: Hand) -> None:
    deleted = [await hand.add_all(_keyed(hand, f"j{n}", key=f"k{n}")) for n in range(5)]
    await hand.add_all(_keyed(hand, "kept", key="kept"))
    for (job,) in deleted:
        await hand.cancel(job)
        await hand.store.delete([job.id])
    store = hand.store
    assert isinstance(store, PortableStore)

    found: list[HeldKey] = []
    page = await store.deleted_keys(None, 2)
    while page.cursor is not None:
        found += page.keys
        page = await store.deleted_keys(page.cursor, 2)
    found += page.keys
    new = HeldKey("a", "other", found[0].digest, found[0].expires_at, "gone")
    await store.adopt_keys([new, replace(found[0], job_id="another")])
    answers = await hand.try_add(_keyed(hand, "twin", key="other"), _keyed(hand, "again", key="k0"))
    hand.clock.advance(WINDOW)
    later = await store.deleted_keys(None, MANY)

    assert {(f"k{n}", job.id) for n, (job,) in enumerate(deleted)} == {
        (held.key, held.job_id) for held in found
    }
    assert 5 == len(found)
    assert [
        Added(AddStatus.DUPLICATE, "gone", deleted=True),
        Added(AddStatus.DUPLICATE, deleted[0][0].id, deleted=True),
    ] == answers
    assert () == later.keys
