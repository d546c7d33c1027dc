"""An app for real worker processes; ``$HOLDFAST_URL`` names its store."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

from holdfast import Holdfast, JobContext

app = Holdfast()


def mark(path: str) -> None:
    """Append this process's id to a file, in one write."""
    draft = Path(f"{path}.{os.getpid()}")
    draft.write_text(str(os.getpid()))
    draft.rename(path)


@app.task("add")
async def add(a: int, b: int) -> int:
    return a + b


@app.task("pause")
async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)  # a job that takes so long


@app.task("hold")
async def hold(ctx: JobContext, started: str, seconds: float = 60.0) -> int:
    """Take long, but only the first time."""
    if ctx.attempt == 1:
        mark(started)
        await asyncio.sleep(seconds)  # a job that takes so long
    return os.getpid()


@app.task("wait")
async def wait(started: str, seconds: float) -> int:
    mark(started)
    await asyncio.sleep(seconds)  # a job that takes so long
    return os.getpid()


@app.task("block")
async def block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  # the mistake that is to be survived


@app.task("seize")
async def seize(seconds: float) -> None:
    """Hold the interpreter lock, so that no thread of this process runs."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@app.task("poison")
async def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task("endure")
async def endure(ctx: JobContext) -> float:
    """Take long except in the last attempt, and return when that started."""
    started, is_last = time.time(), ctx.attempt == ctx.max_attempts
    await asyncio.sleep(1 if is_last else 600)  # or until its worker dies
    return started


@app.task("brief")
async def brief(kills: bool = False) -> None:
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.01)  # a short job that waits for something


@app.task("thread.spin")
def spin(started: str) -> None:
    mark(started)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.01)  # a thread that can be stopped between two steps


@app.task("process.spin", runner="process")
def spin_apart(started: str) -> None:
    mark(started)
    while True:
        pass
