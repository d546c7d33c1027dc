"""Items that wait together are written together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.operations.batcher import QUIET, Batcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


class Paper:
    """Notes which groups were written."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    async def write(self, items: Sequence[int]) -> Sequence[int]:
        self.groups.append(list(items))
        await asyncio.sleep(0)
        return [-item for item in items]


def alone(
    write: Callable[[Sequence[int]], Awaitable[Sequence[int]]],
) -> Callable[[int], Awaitable[int]]:
    """How a caller who is alone writes."""

    async def one(item: int) -> int:
        (answer,) = await write([item])
        return answer

    return one


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_items_of_one_turn_are_written_together_and_each_gets_its_own_answer() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)

    answers = await asyncio.gather(*(batcher.put(n) for n in range(5)))

    assert [0, -1, -2, -3, -4] == answers
    assert [[0, 1, 2, 3, 4]] == paper.groups


async def test_callers_who_were_answered_together_are_written_together_again() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)

    async def caller(number: int) -> None:
        for _ in range(10):
            await batcher.put(number)
            await turns(number % QUIET)  # some come back later than others

    await asyncio.gather(*(caller(number) for number in range(12)))

    assert [12] * 10 == [len(group) for group in paper.groups]


async def test_lone_caller_does_not_wait_for_company() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)
    await batcher.put(1)

    answer = batcher.put(2)
    await asyncio.sleep(0)

    assert [[1], [2]] == paper.groups
    assert -2 == await answer


async def test_group_waits_only_a_few_turns_for_those_who_do_not_come_back() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)
    await asyncio.gather(*(batcher.put(n) for n in range(50)))

    answer = batcher.put(50)
    await turns(QUIET + 1)

    assert [50] == paper.groups[-1]
    assert -50 == await answer


async def test_no_group_is_larger_than_allowed() -> None:
    paper = Paper()
    batcher = Batcher(paper.write, most=4)

    await asyncio.gather(*(batcher.put(n) for n in range(10)))

    assert [4, 4, 2] == [len(group) for group in paper.groups]


async def test_many_callers_are_written_for_in_as_many_groups_as_there_are_lanes() -> None:
    under_way, most = 0, 0
    groups: list[int] = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        nonlocal under_way, most
        groups.append(len(items))
        under_way += 1
        most = max(most, under_way)
        await turns(20)
        under_way -= 1
        return [-item for item in items]

    batcher = Batcher(write, lanes=2)

    async def caller(number: int) -> None:
        for _ in range(10):
            assert -number == await batcher.put(number)

    await asyncio.gather(*(caller(number) for number in range(32)))

    assert 2 == most
    assert [16] * 20 == groups
    await batcher.close()


async def test_few_callers_are_written_for_together_however_many_lanes_there_are() -> None:
    paper = Paper()
    batcher = Batcher(paper.write, lanes=2)

    async def caller(number: int) -> None:
        for _ in range(10):
            await batcher.put(number)

    await asyncio.gather(*(caller(number) for number in range(7)))

    assert [7] * 10 == [len(group) for group in paper.groups]


async def test_group_that_fails_fails_for_each_and_the_next_one_is_written() -> None:
    paper = Paper()

    async def write(items: Sequence[int]) -> Sequence[int]:
        if 13 in items:
            raise OSError("unlucky")
        return await paper.write(items)

    batcher = Batcher(write)

    failed = await asyncio.gather(batcher.put(12), batcher.put(13), return_exceptions=True)

    assert ["unlucky", "unlucky"] == [str(error) for error in failed]
    assert -14 == await batcher.put(14)


async def test_closing_waits_until_everything_is_written() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)
    answer = batcher.put(1)

    await batcher.close()

    assert [[1]] == paper.groups
    assert answer.done()


async def test_answer_nobody_waits_for_any_more_harms_no_other() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)
    left, stayed = batcher.put(1), batcher.put(2)

    left.cancel()

    assert -2 == await stayed
    with pytest.raises(asyncio.CancelledError):
        await left


async def test_lone_caller_writes_at_once_and_those_who_come_meanwhile_together_after_him() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)

    answers = await asyncio.gather(*(batcher.write(n, alone(paper.write)) for n in range(5)))

    assert [0, -1, -2, -3, -4] == answers
    assert [[0], [1, 2, 3, 4]] == paper.groups


async def test_callers_who_write_together_go_on_together() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)

    async def caller(number: int) -> None:
        for _ in range(10):
            await batcher.write(number, alone(paper.write))

    await asyncio.gather(*(caller(number) for number in range(12)))

    assert [1, *[12] * 9, 11] == [len(group) for group in paper.groups]


async def test_lone_caller_who_goes_on_and_on_lets_others_have_their_turn() -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        return items

    batcher, stopped = Batcher(write), asyncio.Event()
    asyncio.get_running_loop().call_soon(stopped.set)

    for _ in range(100):
        await batcher.write(1, alone(write))

    assert stopped.is_set()


async def test_lone_caller_who_fails_or_leaves_keeps_nobody_from_writing() -> None:
    gate = asyncio.Event()
    groups = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        groups.append(list(items))
        if items == [1]:
            raise OSError("unlucky")
        if items == [2]:
            await gate.wait()
        return items

    batcher = Batcher(write)

    with pytest.raises(OSError, match="unlucky"):
        await batcher.write(1, alone(write))
    leaving = asyncio.ensure_future(batcher.write(2, alone(write)))
    await asyncio.sleep(0)
    after = asyncio.ensure_future(batcher.write(3, alone(write)))
    await asyncio.sleep(0)
    leaving.cancel()

    assert 3 == await after
    assert leaving.cancelled()
    assert [[1], [2], [3]] == groups


async def test_closing_waits_for_a_lone_caller_and_those_behind_him() -> None:
    paper = Paper()
    batcher = Batcher(paper.write)
    callers = [asyncio.ensure_future(batcher.write(n, alone(paper.write))) for n in range(3)]
    await asyncio.sleep(0)

    await batcher.close()

    assert [[0], [1, 2]] == paper.groups
    assert [0, -1, -2] == await asyncio.gather(*callers)


async def test_whoever_waits_too_long_is_told_so_and_the_others_get_their_answers() -> None:
    go_on = asyncio.Event()

    async def write(items: Sequence[int]) -> Sequence[int]:
        await go_on.wait()
        return items

    batcher = Batcher(write, patience=0.2)
    early = [batcher.put(1), batcher.put(2)]
    await asyncio.sleep(0.15)
    late = batcher.put(3)

    with pytest.raises(TimeoutError):
        await early[0]
    with pytest.raises(TimeoutError):
        await early[1]
    assert not late.done()
    go_on.set()
    assert 3 == await late


async def test_patience_takes_one_timer_however_many_are_answered(timers: list[object]) -> None:
    batcher = Batcher(Paper().write, patience=30)
    for n in range(100):
        await batcher.put(n)

    assert 1 == len(timers)
