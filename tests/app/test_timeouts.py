"""Timeouts that share one timer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime.timeouts import Timeouts
from tests.waiting import forever


async def test_work_that_takes_too_long_times_out_and_other_work_continues() -> None:
    deadlines = Timeouts()

    async def work(seconds: float, timeout: float) -> str:
        try:
            with deadlines.within(timeout):
                await asyncio.sleep(seconds)  # the work that the timeouts are about
        except TimeoutError:
            return "late"
        return "done"

    answers = await asyncio.gather(
        work(30, 0.05), work(0, 0.05), work(0.1, 30), work(30, 0.02), work(30, 0.08)
    )
    assert answers == ["late", "done", "done", "late", "late"]


async def test_inner_timeout_ends_only_its_own_block() -> None:
    deadlines = Timeouts()
    with deadlines.within(10):
        with pytest.raises(TimeoutError), deadlines.within(0.01):
            await forever()
        await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # a test is a task


async def test_cancellation_from_outside_is_not_a_timeout() -> None:
    deadlines = Timeouts()

    async def work() -> None:
        with deadlines.within(30):
            await forever()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_error_of_the_work_propagates() -> None:
    with pytest.raises(KeyError), Timeouts().within(1):
        raise KeyError("own")


async def test_many_blocks_that_end_in_time_share_one_timer(timers: list[object]) -> None:
    deadlines = Timeouts()
    for _ in range(100):
        with deadlines.within(30):
            pass
    assert len(timers) == 1


async def test_work_that_does_not_wait_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def there() -> str:
        return "here"

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_at", lambda *_: pytest.fail("a timer was made"))

    assert await Timeouts().wait_for(there(), 30) == "here"


async def test_work_that_waits_is_awaited_until_its_timeout() -> None:
    async def later(seconds: float) -> str:
        for _ in range(3):
            await asyncio.sleep(seconds / 3)  # the work that the deadline is about
        return "here"

    deadlines = Timeouts()

    assert await deadlines.wait_for(later(0.01), 30) == "here"
    assert await deadlines.wait_for(later(0), 30) == "here"
    with pytest.raises(TimeoutError):
        await deadlines.wait_for(later(30), 0.01)


async def test_awaited_work_receives_its_cancellation_and_errors() -> None:
    seen = []

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError("own")

    async def careful() -> None:
        try:
            await forever()
        finally:
            seen.append("cleaned up")

    deadlines = Timeouts()
    with pytest.raises(KeyError):
        await deadlines.wait_for(failing(), 30)
    task = asyncio.create_task(deadlines.wait_for(careful(), 30))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned up"]
