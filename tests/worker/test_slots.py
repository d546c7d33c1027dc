"""How many jobs a worker runs at once when the number is not given."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast import Holdfast, State
from holdfast.store.memory import MemoryStore
from holdfast.worker import slots
from tests.waiting import eventually
from tests.worker.rig import working


@pytest.fixture
def app() -> Holdfast:
    return Holdfast(store=MemoryStore())


class Room:
    """Counts who is inside; all wait until it is opened."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.open = threading.Event()
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self._lock:
            self.inside -= 1


def _waiting_task(app: Holdfast, room: Room) -> None:
    @app.task("wait")
    async def wait(text: str = "") -> None:
        room.enter()
        while not room.open.is_set():  # noqa: ASYNC110  # threads share the event
            await asyncio.sleep(0.005)  # another job opens it
        room.leave()


async def test_coroutines_that_wait_get_more_slots(app: Holdfast) -> None:
    room = Room()
    _waiting_task(app, room)
    async with app, working(app):
        await app.submit_batch([{"type": "wait"}] * 700)

        await eventually(lambda: room.inside == slots.MOST)
        room.open.set()

    assert slots.MOST == room.most


async def test_given_number_of_slots_stays(app: Holdfast) -> None:
    room = Room()
    _waiting_task(app, room)
    async with app, working(app, slots=30):
        await app.submit_batch([{"type": "wait"}] * 100)

        await eventually(lambda: room.inside == 30)
        await asyncio.sleep(0.1)  # more would start within it
        room.open.set()

    assert 30 == room.most


async def test_threads_keep_their_number_beside_coroutines(app: Holdfast) -> None:
    threads, coroutines = Room(), Room()
    _waiting_task(app, coroutines)

    @app.task("block")
    def block() -> None:
        threads.enter()
        threads.open.wait(30)
        threads.leave()

    async with app, working(app):
        await app.submit_batch([{"type": "block"}] * 50)
        await app.submit_batch([{"type": "wait"}] * 100)

        await eventually(lambda: threads.inside == slots.LEAST and coroutines.inside == 100)
        threads.open.set()
        coroutines.open.set()
        await eventually(lambda: _all_completed(app, 150))

    assert slots.LEAST == threads.most


async def _all_completed(app: Holdfast, count: int) -> bool:
    return count == sum(queue.counts.get(State.COMPLETED, 0) for queue in await app.queues())


async def test_coroutines_that_compute_get_no_more_slots(app: Holdfast) -> None:
    inside = most = 0

    @app.task("compute")
    async def compute() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.008)  # noqa: ASYNC251  # blocks the loop, as a computation does
        await asyncio.sleep(0)
        inside -= 1

    async with app, working(app):
        await app.submit_batch([{"type": "compute"}] * 120)
        await eventually(lambda: _all_completed(app, 120))

    assert most <= slots.LEAST


async def test_large_payloads_fill_no_more_than_the_memory_for_them(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "PAYLOADS", 100_000)
    room = Room()
    _waiting_task(app, room)
    async with app, working(app):
        text = {"text": "x" * 2_000}
        await app.submit_batch([{"type": "wait", "payload": text}] * 200)

        await eventually(lambda: room.inside > 2 * slots.LEAST)
        await asyncio.sleep(0.1)  # more would start within it
        room.open.set()

    assert room.most <= 50
