"""The app that is tortured: its tasks say in a file of their own what they did."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import PermanentError, TemporaryError
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.tasks.context import JobContext
from holdfast.torture.ledger import Ledger
from holdfast.torture.plan import CRON, POST, TICK, ProcessPlan

MANY = 60
"""More attempts than a job can lose to faults."""

post = msgspec.json.decode(os.environ[POST], type=ProcessPlan)
app = Holdfast(post.url)
_effects = Ledger(post.folder, "effects")
_soon = Backoff(strategy=BackoffKind.CONSTANT, initial_delay=timedelta(seconds=0.2))


def _happened(ctx: JobContext) -> int:
    """Have the effect, which is the last thing a handler does; return the claim's number."""
    version = ctx.attempt_id.rpartition(".")[2]
    _effects.write(f"{ctx.job_id} {version}")
    return int(version)


@app.task("work", max_attempts=MANY, lease=post.lease, timeout=20)
async def work(ctx: JobContext) -> int:
    """Nothing but the effect."""
    return _happened(ctx)


@app.task("nap", max_attempts=MANY, lease=post.lease, timeout=20)
async def nap(ctx: JobContext, seconds: float) -> int:
    """Take a while, and look up at times."""
    while seconds > 0:
        await asyncio.sleep(min(seconds, 0.1))
        seconds -= 0.1
        if ctx.is_cancelled():
            await ctx.checkpoint("told to stop")
    return _happened(ctx)


@app.task("spread", max_attempts=MANY, lease=post.lease, timeout=20)
async def spread(ctx: JobContext, children: int) -> int:
    """Spawn children, each once however often this is tried."""
    for number in range(children):
        await ctx.spawn("work", {}, key=str(number))
    return _happened(ctx)


@app.task("flaky", max_attempts=MANY, lease=post.lease, timeout=20, backoff=_soon)
async def flaky(ctx: JobContext) -> int:
    """Fail at first."""
    if ctx.attempt == 1:
        raise TemporaryError("as asked")
    return _happened(ctx)


@app.task("hopeless", max_attempts=MANY, lease=post.lease, timeout=20)
async def hopeless() -> None:
    """Fail for good."""
    raise PermanentError("as asked")


@app.task("doomed", max_attempts=2, lease=post.lease, timeout=20, backoff=_soon)
async def doomed() -> None:
    """Fail until no attempt is left."""
    raise TemporaryError("as asked")


@app.cron(CRON, missed="all")
@app.task(TICK, max_attempts=MANY, lease=post.lease, timeout=20)
async def tick(ctx: JobContext) -> int:
    """Come every minute."""
    return _happened(ctx)
