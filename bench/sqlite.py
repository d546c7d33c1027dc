"""How much of SQLite's own speed the store leaves, and whether it lasts as the file grows."""

from __future__ import annotations

import asyncio
import functools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.effort import Effort
from bench.fill import fill
from bench.hand import Bare, Hand
from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import Job
from holdfast.model.submission import Submission
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Claim
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.location import Location

PAYLOAD = {"to": "someone@example.com", "subject": "hello", "template": "welcome", "n": 12345}
BYTES = b'{"to":"someone@example.com","subject":"hello","template":"welcome","n":12345}'
BATCH = 1000
CHUNK = 100

randomness = Randomness()


async def main(*, effort: Effort, folder: str | None) -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        await throughput(
            Path(place),
            rounds=effort.pick(9, 3, 1),
            singly=effort.pick(100, 100, 10),
            crowd=effort.pick(500, 500, 50),
        )
        sizes = (1_000, 10_000, 100_000, 1_000_000)
        await growth(Path(place), sizes[: effort.pick(4, 3, 1)])


def jobs(store: SQLiteStore, count: int) -> list[Job]:
    """Accept as many submissions as a client would."""
    asked = Submission(type="bench.task", payload=PAYLOAD)
    now = store.now()
    return [accept(asked, job_id=randomness.uuid(), now=now) for _ in range(count)]


async def throughput(place: Path, *, rounds: int, singly: int, crowd: int) -> None:
    """Compare the store with the same rows written by hand, alternating between the two."""
    print(f"{'share of the hand-written ceiling:':38} {'wall':>6} {'CPU':>6}")
    by_hand = {"hand": Hand(place), "bare": Bare(place)}
    async with SQLiteStore(Location(path=place / "store.db")) as store:

        async def measure(title: str, count: int, way: Way, hand: ByHand) -> None:
            ways = {name: functools.partial(plainly, hand, each) for name, each in by_hand.items()}
            show(title, await compare(rounds, count, store=way, **ways))

        new = [jobs(store, BATCH) for _ in range(rounds)]
        await measure(
            "submit, batches of 1000",
            BATCH,
            lambda: store.add(new.pop()),
            lambda hand: hand.submit([BYTES] * BATCH),
        )
        await measure(
            "claim + settle, batches of 100", BATCH, lambda: work_off(store), work_by_hand
        )
        one = jobs(store, singly * rounds)
        await measure(
            "submit, one awaited after the other",
            singly,
            lambda: submit_singly(store, one, singly),
            lambda hand: submit_by_hand(hand, singly),
        )
        many = jobs(store, crowd * rounds)
        await measure(
            "submit, one each by 50 tasks at once",
            crowd,
            lambda: submit_crowd(store, many, crowd),
            lambda hand: submit_by_hand(hand, crowd),
        )


ByHand = Callable[[Hand | Bare], None]
Way = Callable[[], Awaitable[object]]
Cost = tuple[float, float]
"""Microseconds per job: on the wall clock, and of processor time."""


async def compare(rounds: int, count: int, **ways: Way) -> dict[str, Cost]:
    """Return what a job costs each way: the median over rounds in which all take turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            costs[name].append(await cost(way, count))
    return {name: median(each) for name, each in costs.items()}


async def cost(way: Way, count: int) -> Cost:
    """Return what one job costs when so many are done."""
    wall, cpu = time.perf_counter(), time.process_time()
    await way()
    spent = time.perf_counter() - wall, time.process_time() - cpu
    return spent[0] / count * 1e6, spent[1] / count * 1e6


def median(costs: list[Cost]) -> Cost:
    """Return the median of both figures."""
    return statistics.median(c[0] for c in costs), statistics.median(c[1] for c in costs)


def show(title: str, costs: dict[str, Cost]) -> None:
    """Print one comparison."""
    (wall, cpu), (best, best_cpu) = costs["store"], costs["hand"]
    rates = "  ".join(f"{name} {1e6 / each[0]:7,.0f}/s" for name, each in costs.items())
    print(f"{title:38} {best / wall:6.0%} {best_cpu / cpu:6.0%}   {rates}", flush=True)


async def plainly(call: Callable[[Hand | Bare], None], hand: Hand | Bare) -> None:
    """Run what is not a coroutine."""
    call(hand)


async def submit_singly(store: SQLiteStore, new: list[Job], count: int) -> None:
    """Submit one job after the other."""
    for _ in range(count):
        await store.add([new.pop()])


async def submit_crowd(store: SQLiteStore, new: list[Job], count: int) -> None:
    """Submit one job after the other in each of 50 tasks."""
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(submit_singly(store, new, count // 50))


def submit_by_hand(hand: Hand | Bare, count: int) -> None:
    """Submit one job after the other."""
    for _ in range(count):
        hand.submit([BYTES])


async def work_off(store: SQLiteStore) -> None:
    """Claim and complete, every decision made by the lifecycle."""
    for _ in range(BATCH // CHUNK):
        want = Claim(queues=("default",), limit=CHUNK, worker="bench", token=randomness.token())
        taken = await store.claim(want)
        assert len(taken) == CHUNK
        now = store.now()
        done = [Change(job, lifecycle.completed(job, b"true", now=now)) for job in taken]
        answers = await store.swap(done)
        assert all(answer.written for answer in answers)


def work_by_hand(hand: Hand | Bare) -> None:
    """Claim and complete."""
    for _ in range(BATCH // CHUNK):
        token = randomness.token()
        taken = hand.claim(CHUNK, token)
        assert len(taken) == CHUNK
        hand.settle(taken, token)


async def growth(place: Path, sizes: tuple[int, ...]) -> None:
    """Show what a job costs as finished jobs pile up in the file, with 20 % more delayed ones."""
    path = place / "growth.db"
    print(
        f"\n{'finished':>10} {'delayed':>8} {'submit':>9} {'claim+settle':>13} {'promote':>8}"
        "  (us per job)"
    )
    had = 0
    for size in sizes:
        async with SQLiteStore(Location(path=path)):
            pass
        fill(path, finished=size - had, delayed=(size - had) // 5)
        had = size
        async with SQLiteStore(Location(path=path)) as store:
            costs = [cost[0] for cost in await costs_in(store)]
        print(f"{size:10,} {size // 5:8,} {costs[0]:9.1f} {costs[1]:13.1f} {costs[2]:8.0f}")


async def costs_in(store: SQLiteStore) -> list[Cost]:
    """Return what submitting, working off and looking for due jobs costs in a store."""
    new = [jobs(store, BATCH) for _ in range(5)]
    submit = await compare(5, BATCH, store=lambda: store.add(new.pop()))
    work = await compare(5, BATCH, store=lambda: work_off(store))
    look = await compare(20, 1, store=lambda: store.promote(1000))
    return [each["store"] for each in (submit, work, look)]
