"""Callers that want the same key share one try."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.operations.single_flight import SingleFlight


class Resource:
    """A call that ends when the test resolves it."""

    def __init__(self) -> None:
        self.tries: list[asyncio.Future[str]] = []

    async def __call__(self) -> str:
        self.tries.append(asyncio.get_running_loop().create_future())
        return await self.tries[-1]


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_failure_of_a_call_fails_all_callers_of_its_key() -> None:
    flight, resource = SingleFlight(4), Resource()
    callers = [asyncio.create_task(flight.run("k", resource)) for _ in range(5)]
    await _settled()

    resource.tries[0].set_exception(ValueError("taken"))
    failures = await asyncio.gather(*callers, return_exceptions=True)

    assert 1 == len(resource.tries)
    assert ["taken"] * 5 == [str(failure) for failure in failures]


async def test_after_a_successful_call_each_caller_makes_its_own() -> None:
    flight, resource = SingleFlight(4), Resource()
    callers = [asyncio.create_task(flight.run("k", resource)) for _ in range(3)]
    for n in range(3):
        await _settled()
        assert n + 1 == len(resource.tries)
        resource.tries[n].set_result(str(n))

    assert {"0", "1", "2"} == set(await asyncio.gather(*callers))


async def test_cancelled_caller_is_followed_by_the_next() -> None:
    flight, resource = SingleFlight(4), Resource()
    first, second = (asyncio.create_task(flight.run("k", resource)) for _ in range(2))
    await _settled()

    first.cancel()
    await _settled()
    resource.tries[1].set_result("mine")

    assert "mine" == await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_at_most_the_given_number_of_calls_run_at_once() -> None:
    flight, resource = SingleFlight(2), Resource()
    callers = [asyncio.create_task(flight.run(n, resource)) for n in range(5)]
    for n in range(5):
        await _settled()
        assert min(n + 2, 5) == len(resource.tries)
        resource.tries[n].set_result("")

    await asyncio.gather(*callers)


def test_key_is_awaited_while_a_caller_waits_for_it() -> None:
    flight = SingleFlight(1)

    with flight.waiting("k"):
        with flight.waiting("k"):
            assert flight.is_awaited("k")
        assert flight.is_awaited("k")

    assert not flight.is_awaited("k")
