"""Waiting for jobs when the event stream cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Holdfast, StoreError
from holdfast.model.job import Job
from holdfast.store import MemoryStore


class WithoutEvents(MemoryStore):
    """A store whose event stream cannot be read."""

    async def events(self, *_: object) -> object:  # type: ignore[override]
        raise StoreError("permission denied for table journal")


async def test_waiting_works_without_the_event_stream() -> None:
    async with Holdfast(store=WithoutEvents()) as app:
        job = await app.submit("t")
        waiting = asyncio.create_task(app.wait(job.job_id))
        await asyncio.sleep(0.05)  # until it waits, and looks only now and then
        await app.cancel(job.job_id)

        async with asyncio.timeout(10):
            assert "CANCELLED" == (await waiting).state


async def test_waiting_caller_gets_the_error_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def get(*_: object) -> object:
        raise StoreError("permission denied for table job")

    async with Holdfast(store=(store := WithoutEvents())) as app:
        job = await app.submit("t")
        monkeypatch.setattr(store, "get", get)

        async with asyncio.timeout(10):
            with pytest.raises(StoreError, match="table job"):
                await app.wait(job.job_id)


class Unresponsive(WithoutEvents):
    """Does not answer reads of jobs once it is stuck."""

    is_stuck = False

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        if self.is_stuck:
            await asyncio.Event().wait()
        return await super().get(ids)


async def test_timeout_does_not_wait_for_a_store_that_does_not_answer() -> None:
    async with Holdfast(store=(store := Unresponsive())) as app:
        job = await app.submit("t")
        store.is_stuck = True

        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError, match="has not ended, and the store does not answer"):
                await app.wait(job.job_id, timeout=0.1)
