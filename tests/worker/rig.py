"""What the worker tests share: a worker in the background and a log of its events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from holdfast import Holdfast, State
from holdfast.worker import Worker
from tests.waiting import PATIENCE, eventually


class EventLog:
    """An observer that records events; a test can wait for one."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, object]]] = []
        self._changed = asyncio.Event()

    def emit(self, event: str, **fields: object) -> None:
        self.entries.append((event, fields))
        self._changed.set()

    def all(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.entries if name == event]

    async def wait_for(self, event: str, count: int = 1) -> list[dict[str, object]]:
        async with asyncio.timeout(PATIENCE):
            while len(self.all(event)) < count:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):  # another thread may have emitted it
                        await self._changed.wait()
        return self.all(event)


@contextlib.asynccontextmanager
async def working(app: Holdfast, **options: object) -> AsyncIterator[Worker]:
    """Run a worker in the background; it is halted at the end."""
    async with app:
        worker = Worker(app, **options)  # type: ignore[arg-type]
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.halt()
            async with asyncio.timeout(PATIENCE):
                await task


async def ended(app: Holdfast, job_id: str, timeout: float = PATIENCE) -> State:
    return (await app.wait(job_id, timeout=timeout)).state


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Poll a condition, for what happens in another process."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # no event reports it
            await asyncio.sleep(0.005)


async def until_running(app: Holdfast, job_id: str) -> None:
    async def is_running() -> bool:
        return (await app.get(job_id)).state is State.RUNNING

    await eventually(is_running, every=0.005)


async def appeared(path: Path, seconds: float = PATIENCE) -> str:
    """Wait for a file that a handler writes; return its text."""
    await until(lambda: path.exists() and path.read_text(), seconds)
    return path.read_text()  # noqa: ASYNC240  # a few bytes


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
