"""An app with middleware and resources in every runner; what they see is written to a file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path

from msgspec.structs import replace

from holdfast import (
    AttemptCall,
    Depends,
    Holdfast,
    JobContext,
    Middleware,
    PermanentError,
    Submission,
    SyncJobContext,
    current_job,
)

app = Holdfast("memory://")
OUTER: ContextVar[str] = ContextVar("outer", default="")
INNER: ContextVar[str] = ContextVar("inner", default="")
SLOW = 60.0


def place() -> str:
    """Where this runs: the process, and the thread or task."""
    try:
        task = id(asyncio.current_task())
    except RuntimeError:
        task = 0
    return f"{os.getpid()}/{threading.get_ident()}/{task}"


def record(call: AttemptCall, line: str) -> None:
    """Write a line to the file that the job's headers name."""
    if path := call.headers.get("record"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


class Outer(Middleware):
    """Sync middleware; it also marks every submission."""

    def submitting(self, submission: Submission) -> Submission:
        mark = f"{OUTER.get()}/{INNER.get()}"
        return replace(submission, headers={**(submission.headers or {}), "by": mark})

    @contextlib.contextmanager
    def attempt(self, call: AttemptCall) -> Iterator[None]:
        OUTER.set("outer")
        record(call, f"outer enters {place()}")
        try:
            yield
        finally:
            error = type(call.exception).__name__ if call.exception else ""
            record(call, f"outer leaves {call.outcome} {error} {call.will_retry}")


class Inner(Middleware):
    """Async middleware, around coroutines and plain functions alike."""

    @contextlib.asynccontextmanager
    async def attempt(self, call: AttemptCall) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        INNER.set("inner")
        record(call, "inner enters")
        try:
            yield
        except BaseException as error:
            record(call, f"inner sees {type(error).__name__}")
            raise
        else:
            await asyncio.sleep(0)
            record(call, "inner sees nothing")


app.middleware(Outer())
app.middleware(Inner())


@app.lifespan
async def resource(given: Holdfast) -> AsyncIterator[dict[str, int]]:
    assert given is app
    path = os.environ.get("HOLDFAST_TEST_LIFESPAN")
    _append(path, f"open {os.getpid()}")
    await asyncio.sleep(0)
    yield {"pid": os.getpid(), "loop": id(asyncio.get_running_loop())}
    await asyncio.sleep(0)
    _append(path, f"close {os.getpid()}")


def _append(path: str | None, line: str) -> None:
    if path:
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


def _seen() -> dict[str, object]:
    job = current_job()
    assert job is not None
    logging.getLogger("mine").info("a handler's own line")
    return {
        "place": place(),
        "outer": OUTER.get(),
        "inner": INNER.get(),
        "job": [job.job_id, job.type, job.attempt, dict(job.headers), job.attempt_id],
    }


def _act(how: str) -> None:
    match how:
        case "raise":
            raise ValueError("no")
        case "refuse":
            raise PermanentError("never")
        case _:
            pass


async def coroutine(ctx: JobContext, how: str = "") -> dict[str, object]:
    _act(how)
    if how == "slow":
        await asyncio.sleep(SLOW)  # until it is stopped
    if how == "spawn":
        await ctx.spawn("seam.async", key="child", delay=0.3)
        await ctx.wait_for_children()
    return _seen()


def plain(ctx: SyncJobContext, how: str = "") -> dict[str, object]:
    _act(how)
    if how == "slow":
        for _ in range(1000):
            time.sleep(SLOW / 1000)  # a blocking handler
            if ctx.is_cancelled():
                break
    if how == "spawn":
        ctx.spawn("seam.async", key="child", delay=0.3)
        ctx.wait_for_children()
    return _seen()


app.task("seam.async", max_attempts=2)(coroutine)
app.task("seam.thread", max_attempts=2)(plain)
app.task("seam.process", max_attempts=2, runner="process")(plain)
app.task("seam.process.async", max_attempts=2, runner="process")(coroutine)


async def needs(resource: dict[str, int] = Depends(resource)) -> dict[str, object]:
    return {"resource": resource, "pid": os.getpid()}


def needs_plain(resource: dict[str, int] = Depends(resource)) -> dict[str, object]:
    return {"resource": resource, "pid": os.getpid()}


app.task("seam.needs.async")(needs)
app.task("seam.needs.thread")(needs_plain)
app.task("seam.needs.process", runner="process")(needs_plain)
