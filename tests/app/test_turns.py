"""Trying for what somebody else still holds."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.operations.single_flight import SingleFlight


class Held:
    """Something to try for; a try ends when the test says so."""

    def __init__(self) -> None:
        self.tries: list[asyncio.Future[str]] = []

    async def __call__(self) -> str:
        self.tries.append(asyncio.get_running_loop().create_future())
        return await self.tries[-1]


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_failure_of_one_is_that_of_all_who_wait_for_the_same() -> None:
    turns, held = SingleFlight(4), Held()
    callers = [asyncio.create_task(turns.take("k", held)) for _ in range(5)]
    await _settled()

    held.tries[0].set_exception(ValueError("taken"))
    failures = await asyncio.gather(*callers, return_exceptions=True)

    assert 1 == len(held.tries)
    assert ["taken"] * 5 == [str(failure) for failure in failures]


async def test_after_a_try_that_went_well_each_has_a_turn() -> None:
    turns, held = SingleFlight(4), Held()
    callers = [asyncio.create_task(turns.take("k", held)) for _ in range(3)]
    for n in range(3):
        await _settled()
        assert n + 1 == len(held.tries)
        held.tries[n].set_result(str(n))

    assert {"0", "1", "2"} == set(await asyncio.gather(*callers))


async def test_caller_who_is_cancelled_leaves_the_turn_to_others() -> None:
    turns, held = SingleFlight(4), Held()
    first, second = (asyncio.create_task(turns.take("k", held)) for _ in range(2))
    await _settled()

    first.cancel()
    await _settled()
    held.tries[1].set_result("mine")

    assert "mine" == await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_few_try_at_a_time_whatever_for() -> None:
    turns, held = SingleFlight(2), Held()
    callers = [asyncio.create_task(turns.take(n, held)) for n in range(5)]
    for n in range(5):
        await _settled()
        assert min(n + 2, 5) == len(held.tries)
        held.tries[n].set_result("")

    await asyncio.gather(*callers)


def test_key_is_wanted_while_anybody_waits_for_it() -> None:
    turns = SingleFlight(1)

    with turns.wanting("k"):
        with turns.wanting("k"):
            assert turns.is_wanted("k")
        assert turns.is_wanted("k")

    assert not turns.is_wanted("k")
