"""A store that writes several groups of jobs at once gets them, also behind a wrapper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.encryption.key_ring import KeyRing
from holdfast.encryption.store import encrypted
from holdfast.model.submission import Submission
from holdfast.store import Capabilities, MemoryStore
from holdfast.store.tenants import TenantStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.model.job import Job
    from holdfast.store import Added, Fence, Store


class ParallelStore(MemoryStore):
    """Counts how many groups it writes at once."""

    capabilities = Capabilities(parallel_writes=2)

    def __init__(self) -> None:
        super().__init__()
        self.writing = self.most = 0

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        self.writing += 1
        self.most = max(self.most, self.writing)
        await asyncio.sleep(0.005)  # so that writes overlap if they may
        self.writing -= 1
        return await super().add(jobs, atomic=atomic, fence=fence)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda store: store, id="nothing"),
        pytest.param(lambda store: TenantStore(store, "acme"), id="tenant"),
        pytest.param(
            lambda store: encrypted(store, KeyRing.parse(KeyRing.generate("k1"))), id="encrypted"
        ),
    ],
)
async def test_many_submissions_are_written_in_parallel_groups(
    before: Callable[[Store], Store],
) -> None:
    store = ParallelStore()
    async with Holdfast(store=store) as app:
        operations = app.over(before(store))
        await asyncio.gather(*(operations.submit(Submission(type="a")) for _ in range(32)))

    assert 2 == store.most
