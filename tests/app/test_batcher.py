"""Items that wait together are written together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.operations.batcher import QUIET_TURNS, Batcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


class Writer:
    """Records which groups were written."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    async def write(self, items: Sequence[int]) -> Sequence[int]:
        self.groups.append(list(items))
        await asyncio.sleep(0)
        return [-item for item in items]


def directly(
    write: Callable[[Sequence[int]], Awaitable[Sequence[int]]],
) -> Callable[[int], Awaitable[int]]:
    """Return how a lone caller writes its item."""

    async def one(item: int) -> int:
        (answer,) = await write([item])
        return answer

    return one


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_items_of_one_turn_are_written_together_and_each_gets_its_own_answer() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)

    answers = await asyncio.gather(*(batcher.put(n) for n in range(5)))

    assert [0, -1, -2, -3, -4] == answers
    assert [[0, 1, 2, 3, 4]] == writer.groups


async def test_callers_answered_together_are_written_together_again() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)

    async def caller(number: int) -> None:
        for _ in range(10):
            await batcher.put(number)
            await turns(number % QUIET_TURNS)  # some come back later than others

    await asyncio.gather(*(caller(number) for number in range(12)))

    assert [12] * 10 == [len(group) for group in writer.groups]


async def test_lone_caller_does_not_wait_for_others() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)
    await batcher.put(1)

    answer = batcher.put(2)
    await asyncio.sleep(0)

    assert [[1], [2]] == writer.groups
    assert -2 == await answer


async def test_group_waits_only_a_few_turns_for_callers_that_do_not_come_back() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)
    await asyncio.gather(*(batcher.put(n) for n in range(50)))

    answer = batcher.put(50)
    await turns(QUIET_TURNS + 1)

    assert [50] == writer.groups[-1]
    assert -50 == await answer


async def test_no_group_is_larger_than_allowed() -> None:
    writer = Writer()
    batcher = Batcher(writer.write, most=4)

    await asyncio.gather(*(batcher.put(n) for n in range(10)))

    assert [4, 4, 2] == [len(group) for group in writer.groups]


async def test_many_callers_are_written_in_parallel_groups() -> None:
    running, most = 0, 0
    groups: list[int] = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        nonlocal running, most
        groups.append(len(items))
        running += 1
        most = max(most, running)
        await turns(20)
        running -= 1
        return [-item for item in items]

    batcher = Batcher(write, parallel=2)

    async def caller(number: int) -> None:
        for _ in range(10):
            assert -number == await batcher.put(number)

    await asyncio.gather(*(caller(number) for number in range(32)))

    assert 2 == most
    assert [16] * 20 == groups
    await batcher.close()


async def test_few_callers_are_written_in_one_group_although_more_are_allowed() -> None:
    writer = Writer()
    batcher = Batcher(writer.write, parallel=2)

    async def caller(number: int) -> None:
        for _ in range(10):
            await batcher.put(number)

    await asyncio.gather(*(caller(number) for number in range(7)))

    assert [7] * 10 == [len(group) for group in writer.groups]


async def test_failed_group_fails_for_each_caller_and_the_next_one_is_written() -> None:
    writer = Writer()

    async def write(items: Sequence[int]) -> Sequence[int]:
        if 13 in items:
            raise OSError("unlucky")
        return await writer.write(items)

    batcher = Batcher(write)

    failed = await asyncio.gather(batcher.put(12), batcher.put(13), return_exceptions=True)

    assert ["unlucky", "unlucky"] == [str(error) for error in failed]
    assert -14 == await batcher.put(14)


async def test_closing_waits_until_everything_is_written() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)
    answer = batcher.put(1)

    await batcher.close()

    assert [[1]] == writer.groups
    assert answer.done()


async def test_cancelled_caller_does_not_affect_the_others() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)
    first, second = batcher.put(1), batcher.put(2)

    first.cancel()

    assert -2 == await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_lone_caller_writes_at_once_and_later_callers_together_after_it() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)

    answers = await asyncio.gather(*(batcher.write(n, directly(writer.write)) for n in range(5)))

    assert [0, -1, -2, -3, -4] == answers
    assert [[0], [1, 2, 3, 4]] == writer.groups


async def test_callers_written_together_stay_together() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)

    async def caller(number: int) -> None:
        for _ in range(10):
            await batcher.write(number, directly(writer.write))

    await asyncio.gather(*(caller(number) for number in range(12)))

    assert [1, *[12] * 9, 11] == [len(group) for group in writer.groups]


async def test_lone_caller_in_a_tight_loop_yields_to_other_tasks() -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        return items

    batcher, stopped = Batcher(write), asyncio.Event()
    asyncio.get_running_loop().call_soon(stopped.set)

    for _ in range(100):
        await batcher.write(1, directly(write))

    assert stopped.is_set()


async def test_lone_caller_that_fails_or_is_cancelled_does_not_block_others() -> None:
    released = asyncio.Event()
    groups = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        groups.append(list(items))
        if items == [1]:
            raise OSError("unlucky")
        if items == [2]:
            await released.wait()
        return items

    batcher = Batcher(write)

    with pytest.raises(OSError, match="unlucky"):
        await batcher.write(1, directly(write))
    cancelled = asyncio.ensure_future(batcher.write(2, directly(write)))
    await asyncio.sleep(0)
    after = asyncio.ensure_future(batcher.write(3, directly(write)))
    await asyncio.sleep(0)
    cancelled.cancel()

    assert 3 == await after
    assert cancelled.cancelled()
    assert [[1], [2], [3]] == groups


async def test_closing_waits_for_a_lone_caller_and_those_after_it() -> None:
    writer = Writer()
    batcher = Batcher(writer.write)
    callers = [asyncio.ensure_future(batcher.write(n, directly(writer.write))) for n in range(3)]
    await asyncio.sleep(0)

    await batcher.close()

    assert [[0], [1, 2]] == writer.groups
    assert [0, -1, -2] == await asyncio.gather(*callers)


async def test_item_that_waits_too_long_times_out_and_the_others_get_their_answers() -> None:
    go_on = asyncio.Event()

    async def write(items: Sequence[int]) -> Sequence[int]:
        await go_on.wait()
        return items

    batcher = Batcher(write, timeout=0.2)
    early = [batcher.put(1), batcher.put(2)]
    await asyncio.sleep(0.15)  # most of the patience of the early ones
    late = batcher.put(3)

    with pytest.raises(TimeoutError):
        await early[0]
    with pytest.raises(TimeoutError):
        await early[1]
    assert not late.done()
    go_on.set()
    assert 3 == await late


async def test_timeouts_of_many_items_take_one_timer(timers: list[object]) -> None:
    batcher = Batcher(Writer().write, timeout=30)
    for n in range(100):
        await batcher.put(n)

    assert 1 == len(timers)
