"""Resources: entered once per worker process before its jobs, and left after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast, ValidationError, Worker
from holdfast.tasks import resources
from tests.worker.rig import working
from tests.worker.seam_tasks import app as tasks


async def test_resources_are_entered_in_order_and_left_in_reverse() -> None:
    app, steps = Holdfast("memory://"), list[str]()

    @app.lifespan
    async def first(given: Holdfast) -> AsyncIterator[None]:
        assert given is app
        await given.submit("work")
        steps.append("open first")
        yield
        steps.append("close first")

    @app.lifespan
    @asynccontextmanager
    async def second() -> AsyncIterator[None]:
        steps.append("open second")
        yield
        steps.append("close second")

    @app.task("work")
    def work() -> None:
        steps.append("work")

    async with app:
        await Worker(app).run(burst=True)

    assert ["open first", "open second", "work", "close second", "close first"] == steps
    assert first is not None


async def test_a_resource_that_fails_keeps_the_worker_from_starting() -> None:
    app, steps = Holdfast("memory://"), list[str]()

    @app.lifespan
    async def first() -> AsyncIterator[None]:
        yield
        steps.append("close first")

    @app.lifespan
    async def broken() -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    @app.task("work")
    async def work() -> None:
        steps.append("work")

    async with app:
        await app.submit("work")
        with pytest.raises(ConnectionError, match="no database"):
            await Worker(app).run(burst=True)

    assert ["close first"] == steps


async def test_workers_on_one_loop_share_a_resource_until_the_last_leaves() -> None:
    app, steps = Holdfast("memory://"), list[str]()

    @app.lifespan
    async def slow() -> AsyncIterator[None]:
        await asyncio.sleep(0.01)  # the second worker comes meanwhile
        steps.append("open")
        yield
        steps.append("close")

    async with app, working(app), working(app):
        await asyncio.sleep(0.05)  # both have started

    assert ["open", "close"] == steps


async def test_child_processes_enter_and_leave_the_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lifespan"
    monkeypatch.setenv("HOLDFAST_TEST_LIFESPAN", str(path))

    async with working(tasks, slots=4):
        job = await tasks.submit("seam.process")
        status = await tasks.wait(job.job_id, timeout=15)

    assert isinstance(status.output, dict)
    child = status.output["place"].split("/")[0]
    steps = path.read_text().splitlines()
    assert f"open {child}" in steps
    assert sorted(line.split()[1] for line in steps if line.startswith("open")) == sorted(
        line.split()[1] for line in steps if line.startswith("close")
    )


def test_a_function_that_cannot_be_a_lifespan_is_refused() -> None:
    app = Holdfast("memory://")

    async def no_generator() -> None: ...

    with pytest.raises(ValidationError, match="async generator"):
        app.lifespan(no_generator)


async def test_a_resource_that_does_not_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "LEAVE_SECONDS", 0.05)
    app, steps = Holdfast("memory://"), list[str]()

    @app.lifespan
    async def endless() -> AsyncIterator[None]:
        yield
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    with pytest.raises(TimeoutError, match="did not end within"):
        async with app:
            await Worker(app).run(burst=True)

    assert ["cancelled"] == steps
