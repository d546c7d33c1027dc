"""How much of the library one job passes through: ceilings that only ever go down."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import holdfast
from holdfast import Holdfast
from holdfast.worker import Worker
from tests.conformance.stores import empty_schema

if TYPE_CHECKING:
    from types import FrameType

    from tests.servers import ExternalPostgres, Postgres

LIBRARY = Path(holdfast.__file__).parent
SQLITE_FILES, POSTGRES_FILES = 38, 34
"""Distinct files of the library from submit to COMPLETED."""
FRAMES = 2
"""Frames of the library between the event loop and a coroutine handler."""
WARM_UP = 3
WALKS = 7
PATIENCE = 15.0


class Walk:
    """Records which files of the library run between two moments, in every thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_recording = False
        self.completed = asyncio.Event()

    def __enter__(self) -> Self:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def begin(self) -> None:
        self.files = set()
        self.completed.clear()
        self.is_recording = True

    def emit(self, event: str, **_: object) -> None:
        """Stop recording when the worker reports the end: the walk is the worker's observer."""
        if event == "job.completed":
            self.is_recording = False
            self.completed.set()

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_recording and event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(LIBRARY):
                self.files.add(path.relative_to(LIBRARY).as_posix())


async def walks(url: str) -> tuple[set[str], int]:
    """Return the files of the shortest walk through a warm worker, and the handler's depth.

    A heartbeat or a poll may fall into a walk by chance; the shortest of several has none.
    """
    app, depths = Holdfast(url), list[int]()

    @app.task("walk")
    async def handler(number: int) -> int:
        depths.append(_depth(sys._getframe(1)))  # no other way to the frames above a handler
        return number

    found: list[set[str]] = []
    with Walk() as walk:
        async with app:
            worker = Worker(app, maintenance=False, observer=walk)
            running = asyncio.create_task(worker.run())
            for number in range(WARM_UP + WALKS):
                await asyncio.sleep(0.05)  # the worker waits for work again
                walk.begin()
                await handler.submit(number)
                async with asyncio.timeout(PATIENCE):
                    await walk.completed.wait()
                found.append(walk.files)
            worker.halt()
            await running
    return min(found[WARM_UP:], key=len), max(depths)


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(LIBRARY):
        depth, frame = depth + 1, frame.f_back
    return depth


async def test_a_job_on_sqlite_passes_through_few_files(tmp_path: Path) -> None:
    files, frames = await walks(f"sqlite:///{tmp_path}/walk.db")

    assert len(files) <= SQLITE_FILES, sorted(files)
    assert frames <= FRAMES


async def test_a_job_on_postgres_passes_through_few_files(
    postgres_server: Postgres | ExternalPostgres,
) -> None:
    empty_schema(postgres_server.dsn, "walk")

    files, frames = await walks(f"{postgres_server.dsn}?schema=walk")

    assert len(files) <= POSTGRES_FILES, sorted(files)
    assert frames <= FRAMES
