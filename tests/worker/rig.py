"""What the worker tests share: a worker in the background and an ear for what it tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from holdfast import Holdfast, State
from holdfast.worker import Worker
from tests.waiting import PATIENCE, eventually


class Ear:
    """Records what is told, and can be awaited for it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []
        self._news = asyncio.Event()

    def emit(self, event: str, **fields: object) -> None:
        self.told.append((event, fields))
        self._news.set()

    def all(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.told if name == event]

    async def heard(self, event: str, count: int = 1) -> list[dict[str, object]]:
        async with asyncio.timeout(PATIENCE):
            while len(self.all(event)) < count:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):  # told from another thread
                        await self._news.wait()
        return self.all(event)


@contextlib.asynccontextmanager
async def working(
    app: Holdfast, *, ear: Ear | None = None, **options: object
) -> AsyncIterator[Worker]:
    """Run a worker for a while; it is halted at the end."""
    async with app:
        worker = Worker(app, observer=ear, **options)  # type: ignore[arg-type]
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
    """Look again and again: for what happens in another process and tells nobody."""
    await eventually(condition, within=seconds, every=0.005)


async def until_running(app: Holdfast, job_id: str) -> None:
    async def is_running() -> bool:
        return (await app.get(job_id)).state is State.RUNNING

    await eventually(is_running, every=0.005)


async def appeared(path: Path, seconds: float = PATIENCE) -> str:
    """Wait for a file that a handler writes, and return what it says."""
    await until(lambda: path.exists() and path.read_text(), seconds)
    return path.read_text()  # noqa: ASYNC240  # a few bytes


def is_alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
