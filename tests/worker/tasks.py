"""Tasks that real processes import: the process runner's children, and supervised workers."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast import (
    Backoff,
    Holdfast,
    JobContext,
    PermanentError,
    Submission,
    SyncJobContext,
    TemporaryError,
    ValidationError,
)

app = Holdfast("memory://")


class OddError(Exception):
    """An exception that the registration maps."""


@app.task("process.echo", runner="process")
def echo(value: int = 0) -> int:
    return value


@app.task("process.whoami", runner="process")
def whoami() -> dict[str, int]:
    return {"pid": os.getpid(), "group": os.getpgrp(), "parent": os.getppid()}


@app.task("process.fds", runner="process")
def open_files() -> list[str]:
    return [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.exists()]


@app.task("process.coroutine", runner="process")
async def coroutine(ctx: JobContext, value: int) -> dict[str, object]:
    await asyncio.sleep(0)
    await ctx.report_progress(50, "half")
    await ctx.checkpoint({"value": value})
    return {"value": value, "restored": ctx.restore(dict)}


@app.task("process.transaction", runner="process")
def transaction(ctx: SyncJobContext) -> None:
    with ctx.transaction():
        pass


@app.task("process.transaction.coroutine", runner="process")
async def transaction_coroutine(ctx: JobContext) -> None:
    async with ctx.transaction():
        pass


@app.task("process.die", runner="process", max_attempts=1)
def die(how: str) -> None:
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise AssertionError(how)


@app.task("process.greedy", runner="process", max_attempts=1, memory_limit=600 * 1024 * 1024)
def greedy() -> int:
    return len(b"x" * (2 * 1024**3))


@app.task("process.raise", runner="process", max_attempts=1, permanent=[OddError])
def fail(what: str) -> None:
    match what:
        case "temporary":
            raise TemporaryError("later", retry_after=60, code="LATER")
        case "permanent":
            raise PermanentError("never", code="NEVER")
        case "odd":
            raise OddError("odd")
        case _:
            raise ValueError(what)


@app.task("process.context", runner="process")
def context(ctx: SyncJobContext, value: int) -> dict[str, object]:
    ctx.report_progress(40, "on the way")
    ctx.log("info", "hello", answer=42)
    ctx.checkpoint({"value": value})
    ctx.update_payload({"value": value + 1})
    child = ctx.spawn("process.echo", {"value": value}, key="only", delay=timedelta(hours=1))
    again = ctx.spawn("process.echo", {"value": value}, key="only", delay=timedelta(hours=1))
    refused = ""
    try:
        ctx.report_progress(101)
    except Exception as error:  # noqa: BLE001
        refused = type(error).__name__
    wrong = ""
    try:
        ctx.spawn("process.echo", {}, priority="SOMEDAY")
    except Exception as error:  # noqa: BLE001
        wrong = type(error).__name__
    return {
        "child": child,
        "again": again,
        "refused": refused,
        "wrong": wrong,
        "attempt": ctx.attempt,
        "ahead": (ctx.deadline - ctx.created_at).total_seconds() > 0,
    }


@app.task("process.wait", runner="process")
def wait(ctx: SyncJobContext) -> list[object]:
    """Wait for two children, and return their results."""
    for n in (1, 2):
        ctx.spawn("process.echo", {"value": n}, key=str(n))
    return [child.result for child in ctx.wait_for_children()]


@app.task("process.spawn", runner="process")
def spawning(ctx: SyncJobContext) -> list[str]:
    low = echo.using(priority="LOW", tags={"a": "b"}, backoff=Backoff(max_delay=timedelta(7)))
    later = low.using(scheduled_at=datetime.now(UTC) + timedelta(hours=1))
    made = [
        ctx.spawn(later.submission(1)),
        ctx.spawn(later, {"value": 2}),
        ctx.spawn(later.submission(3), priority="HIGH", idempotency_key=ctx.job_id),
        ctx.spawn(later.submission(3), priority="HIGH", idempotency_key=ctx.job_id),
    ]
    for wrong in (lambda: ctx.spawn(7), lambda: ctx.spawn(Submission(type=7))):  # type: ignore[arg-type, call-overload]  # wrong on purpose
        try:
            wrong()
        except ValidationError as error:
            made.append(error.faults[0].field)
    return made


@app.task("process.gather", runner="process")
def gather(ctx: SyncJobContext) -> list[object]:
    return sorted(ctx.dependency_results().values(), key=str)


@app.task("process.spin", runner="process", max_attempts=1)
def spin(started: str, *, ignore_term: bool = False, cleaned: str = "") -> None:
    if ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(started).write_text(str(os.getpid()))
    try:
        while True:
            pass
    finally:
        if cleaned:
            Path(cleaned).write_text("cleaned")


@app.task("process.family", runner="process", max_attempts=1)
def family(started: str) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(started).write_text(str(child.pid))
    threading.Event().wait()


@app.task("process.polite", runner="process", max_attempts=1)
def polite(ctx: SyncJobContext, started: str) -> str:
    Path(started).write_text("up")
    deadline = time.monotonic() + 20
    while not ctx.is_cancelled():
        if time.monotonic() > deadline:
            return "never returned"
        time.sleep(0.01)  # a handler that polls, as users write it
    ctx.checkpoint({"last": "words"})
    return "still here"


@app.task("process.print", runner="process")
def loud() -> None:
    print("hello from a child")
