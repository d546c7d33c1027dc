"""Notes of a running job are kept, however soon it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from holdfast import Holdfast, JobContext, State, SyncJobContext
from holdfast.store import JobNote, MemoryStore
from tests.worker.rig import ended, working


class Slow(MemoryStore):
    """Writes notes slowly."""

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        await asyncio.sleep(0.02)  # a slow store
        return await super().note(notes)


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Holdfast]:
    on_file = request.param == "sqlite"
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db") if on_file else Holdfast(store=Slow())

    @app.task("chatty")
    async def chatty(context: JobContext) -> None:
        for i in range(5):
            await context.log("INFO", f"line {i}")
            await context.report_progress(20 * i)
            await asyncio.sleep(0)
        await context.log("INFO", "last words")
        await context.report_progress(100, "done")

    @app.task("chatty.thread")
    def chatty_thread(context: SyncJobContext) -> None:
        context.log("INFO", "first words")
        context.log("INFO", "last words")
        context.report_progress(100, "done")

    async with app:
        yield app


@pytest.mark.req("A-6")
@pytest.mark.parametrize("type_", ["chatty", "chatty.thread"])
async def test_notes_written_just_before_a_job_returns_are_kept(app: Holdfast, type_: str) -> None:
    async with working(app):
        jobs = [(await app.submit(type_)).job_id for _ in range(5)]
        for job_id in jobs:
            assert State.COMPLETED is await ended(app, job_id)

        for job_id in jobs:
            assert "last words" == (await app.store.logs([job_id]))[0][-1].message
            (job,) = await app.store.get([job_id])
            assert job is not None
            assert job.progress is not None
            assert 100 == job.progress.percent
