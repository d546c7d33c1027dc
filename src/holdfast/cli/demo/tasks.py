"""The tasks of the demonstration."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import TemporaryError
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.tasks.context import JobContext, SyncJobContext

app = Holdfast()

SOON = Backoff(strategy=BackoffKind.CONSTANT, initial_delay=timedelta(seconds=0.3))
STEPS = 20


@app.task("email.send")
async def send_email(to: str) -> str:
    """An async function, on the worker's event loop."""
    await asyncio.sleep(0.05)
    return f"sent to {to}"


@app.task("image.resize")
def resize_image(width: int) -> int:
    """A plain function, in a thread."""
    time.sleep(0.05)
    return width // 2


@app.task("payment.book", backoff=SOON)
async def book_payment(ctx: JobContext, amount: int) -> str:
    """Fails once, as payment providers do."""
    if ctx.attempt == 1:
        raise TemporaryError("the bank did not answer")
    return f"booked {amount}"


@app.task("invoice.print", max_attempts=2, backoff=SOON)
async def print_invoice() -> None:
    """Fails every time."""
    raise TemporaryError("no such printer")


@app.task("numbers.split")
async def split_numbers(upto: int) -> list[int]:
    return list(range(1, upto + 1))


@app.task("numbers.square")
async def square_number(ctx: JobContext, index: int) -> int:
    """Reads the result of the step before."""
    (numbers,) = (await ctx.dependency_results()).values()
    assert isinstance(numbers, list)
    return int(numbers[index]) ** 2


@app.task("numbers.sum")
async def sum_numbers(ctx: JobContext) -> int:
    """Waits for several jobs and adds up their results."""
    results = await ctx.dependency_results()
    return sum(n for n in results.values() if isinstance(n, int))


@app.task("primes.count", runner="process")
def count_primes(ctx: SyncJobContext, limit: int) -> int:
    """Uses the CPU, in a process of its own, and reports progress."""
    found = 0
    for n in range(2, limit):
        found += all(n % d for d in range(2, int(n**0.5) + 1))
        if n % (limit // 5) == 0:
            ctx.report_progress(100 * n // limit, f"{found} primes below {n}")
    return found


@app.task("archive.import", lease=2)
async def import_archive(ctx: JobContext) -> dict[str, int]:
    """Takes two seconds and keeps checkpoints."""
    done = ctx.restore(int) or 0
    first = done
    while done < STEPS:
        await asyncio.sleep(0.1)
        done += 1
        await ctx.checkpoint(done)
    return {"steps": done, "resumed_at": first}


@app.task("loop.forever", runner="process", timeout=60)
def loop_forever() -> None:
    """Never returns and never checks for cancellation."""
    while True:
        pass
