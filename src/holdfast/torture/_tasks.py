"""The app of a run: its tasks record their effects in a file outside the queue."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import PermanentError, TemporaryError
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.tasks.context import JobContext
from holdfast.torture.ledger import EFFECTS, Ledger
from holdfast.torture.plan import CRON, CRON_TASK, PLAN_VARIABLE, ProcessPlan

ENOUGH_ATTEMPTS = 60
"""More attempts than faults can use up."""

plan = msgspec.json.decode(os.environ[PLAN_VARIABLE], type=ProcessPlan)
app = Holdfast(plan.url)
_effects = Ledger(plan.folder, EFFECTS)
_soon = Backoff(strategy=BackoffKind.CONSTANT, initial_delay=timedelta(seconds=0.2))


def _record_effect(ctx: JobContext) -> int:
    """Record the effect, the last thing a handler does; return the number of the claim."""
    version = ctx.attempt_id.rpartition(".")[2]
    _effects.write(f"{ctx.job_id} {version}")
    return int(version)


@app.task("work", max_attempts=ENOUGH_ATTEMPTS, lease=plan.lease, timeout=20)
async def work(ctx: JobContext) -> int:
    """Have the effect and nothing else."""
    return _record_effect(ctx)


@app.task("nap", max_attempts=ENOUGH_ATTEMPTS, lease=plan.lease, timeout=20)
async def nap(ctx: JobContext, seconds: float) -> int:
    """Take a while, and check for cancellation."""
    while seconds > 0:
        await asyncio.sleep(min(seconds, 0.1))
        seconds -= 0.1
        if ctx.is_cancelled():
            await ctx.checkpoint("cancelled")
    return _record_effect(ctx)


@app.task("spread", max_attempts=ENOUGH_ATTEMPTS, lease=plan.lease, timeout=20)
async def spread(ctx: JobContext, children: int) -> int:
    """Spawn children, each once over all attempts."""
    for number in range(children):
        await ctx.spawn("work", {}, key=str(number))
    return _record_effect(ctx)


@app.task("flaky", max_attempts=ENOUGH_ATTEMPTS, lease=plan.lease, timeout=20, backoff=_soon)
async def flaky(ctx: JobContext) -> int:
    """Fail in the first attempt."""
    if ctx.attempt == 1:
        raise TemporaryError("as planned")
    return _record_effect(ctx)


@app.task("failing", max_attempts=ENOUGH_ATTEMPTS, lease=plan.lease, timeout=20)
async def failing() -> None:
    """Fail permanently."""
    raise PermanentError("as planned")


@app.task("exhausted", max_attempts=2, lease=plan.lease, timeout=20, backoff=_soon)
async def exhausted() -> None:
    """Fail until no attempt is left."""
    raise TemporaryError("as planned")


@app.cron(CRON, missed="all")
@app.task(CRON_TASK, max_attempts=ENOUGH_ATTEMPTS, lease=plan.lease, timeout=20)
async def tick(ctx: JobContext) -> int:
    """Run every minute."""
    return _record_effect(ctx)
