"""Waiting for jobs when the stream of events cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Holdfast, StoreError
from holdfast.model.job import Job
from holdfast.store import MemoryStore


class Wordless(MemoryStore):
    """Has jobs, and no events to tell of."""

    async def events(self, *_: object) -> object:  # type: ignore[override]
        raise StoreError("permission denied for table journal")


async def test_job_is_waited_for_without_the_stream() -> None:
    async with Holdfast(store=Wordless()) as app:
        job = await app.submit("t")
        waiting = asyncio.create_task(app.wait(job.job_id))
        await asyncio.sleep(0.05)
        await app.cancel(job.job_id)

        async with asyncio.timeout(10):
            assert "CANCELLED" == (await waiting).state


async def test_whoever_waits_is_told_what_is_wrong_with_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def get(*_: object) -> object:
        raise StoreError("permission denied for table job")

    async with Holdfast(store=(store := Wordless())) as app:
        job = await app.submit("t")
        monkeypatch.setattr(store, "get", get)

        async with asyncio.timeout(10):
            with pytest.raises(StoreError, match="table job"):
                await app.wait(job.job_id)


class Silent(Wordless):
    """Answers nobody who asks for a job, once it is told so."""

    silent = False

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        if self.silent:
            await asyncio.Event().wait()
        return await super().get(ids)


async def test_end_of_patience_does_not_wait_for_a_silent_store() -> None:
    async with Holdfast(store=(store := Silent())) as app:
        job = await app.submit("t")
        store.silent = True

        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError, match="has not ended, and the store is silent"):
                await app.wait(job.job_id, timeout=0.1)
