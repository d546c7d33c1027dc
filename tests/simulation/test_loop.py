"""The simulated event loop: virtual time, and processes that die as processes do."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.simulation.loop import PROCESS, SimLoop, Stuck


@pytest.fixture
def loop():
    loop = SimLoop(random.Random(0))
    yield loop
    loop.take_back()


def test_time_passes_without_real_waiting(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400))

    assert 86_400 == loop.time()


def test_a_killed_process_runs_no_finally_and_nothing_else(loop: SimLoop) -> None:
    ran: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(2)
        finally:
            ran.append("child cleans up")

    async def process() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                await asyncio.sleep(5)
        finally:
            ran.append("cleans up")

    loop.spawn("p", process())
    loop.call_later(1, loop.kill, "p")
    loop.run_until_complete(asyncio.sleep(10))

    assert [] == ran
    assert not loop.is_alive("p")


def test_a_paused_process_continues_later_with_late_timers(loop: SimLoop) -> None:
    woken: list[float] = []

    async def process() -> None:
        await asyncio.sleep(2)
        woken.append(loop.time())

    loop.spawn("p", process())
    loop.call_later(1, loop.pause, "p", 5)
    loop.run_until_complete(asyncio.sleep(10))

    assert [6.0] == woken


def test_processes_take_turns_by_the_seed_but_keep_their_own_order() -> None:
    def run(seed: int) -> list[str]:
        loop = SimLoop(random.Random(seed))
        order: list[str] = []

        async def process() -> None:
            for number in range(3):
                order.append(f"{PROCESS.get()}{number}")
                await asyncio.sleep(0)

        async def both() -> None:
            await asyncio.gather(loop.spawn("a", process()), loop.spawn("b", process()))

        loop.run_until_complete(both())
        loop.take_back()
        return order

    orders = [run(seed) for seed in range(20)]

    assert orders == [run(seed) for seed in range(20)]
    assert len(set(map(tuple, orders))) > 3
    assert all([o for o in order if o[0] == "a"] == ["a0", "a1", "a2"] for order in orders)


def test_nothing_left_to_run_is_an_error(loop: SimLoop) -> None:
    with pytest.raises(Stuck, match="nothing can run"):
        loop.run_until_complete(asyncio.Event().wait())


def test_a_busy_loop_is_an_error() -> None:
    loop = SimLoop(random.Random(0), most_steps=1000)

    async def spin() -> None:
        while True:  # noqa: ASYNC110  # to be stopped is the point
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="1000 steps"):
        loop.run_until_complete(spin())
    loop.take_back()


def test_tasks_that_fail_unnoticed_are_reported(loop: SimLoop) -> None:
    async def die() -> None:
        raise ValueError("unnoticed")

    loop.spawn("p", die())
    loop.run_until_complete(asyncio.sleep(1))
    loop.take_back()

    assert ["unnoticed" in text for text in loop.complaints] == [True]


def test_threads_are_simulated(loop: SimLoop) -> None:
    assert 3 == loop.run_until_complete(asyncio.to_thread(lambda: 1 + 2))
