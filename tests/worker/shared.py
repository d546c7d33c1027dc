"""An app whose rules hold across processes: a schedule, and limits."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from holdfast import Holdfast, LimitRule

app = Holdfast()


@app.cron("* * * * * *", missed="all")
@app.task("tick")
async def tick() -> None: ...


@app.task("narrow", limit=LimitRule(concurrency=3))
async def narrow(diary: str) -> None:
    await _stay(diary)


@app.task("keyed", key_limit=LimitRule(concurrency=1))
async def keyed(diary: str) -> None:
    await _stay(diary)


@app.task("paced", limit=LimitRule(rate=20, per=timedelta(seconds=1)))
async def paced() -> int:
    return os.getpid()


async def _stay(diary: str) -> None:
    """Write when it started and ended, by a clock that all processes share."""
    came = time.monotonic()
    await asyncio.sleep(0.05)  # long enough to be there beside others
    with Path(diary).open("a") as file:  # noqa: ASYNC230  # one line, appended in one step
        file.write(f"{came} {time.monotonic()} {os.getpid()}\n")
