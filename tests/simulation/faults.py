"""A store behind a network that loses, delays and repeats, for every verb of the contract.

A call that fails here raises ``StoreUnavailableError`` and may or may not have acted, now or
later: that is what the contract allows, and what the code above it must bear.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreUnavailableError
from holdfast.model.job import Event
from holdfast.store import MemoryStore, Store
from holdfast.tasks.inline import run_now
from tests.simulation.loop import PROCESS, WORLD, SimLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Sequence
    from datetime import datetime

    from holdfast.store import Change
    from tests.simulation.record import Record

    Act = Callable[[], Coroutine[Any, Any, Any]]
    Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

PATIENCE = 4.0
"""Seconds after which a caller gives up waiting for an answer."""

LATENCY = (0.001, 0.02)

VERBS = tuple(
    name
    for name, member in vars(Store).items()
    if inspect.iscoroutinefunction(member) and name not in ("start", "close")
)
REAPING = "reaping"
"""Reaping: slow, so that a late renewal can come in between."""

HINTS = ("arrivals", "events")
"""Verbs that wait for events; their answers may be late or missing without a fault."""


class Fate(StrEnum):
    """What becomes of one call."""

    FINE = "fine"
    LOST_REQUEST = "request lost"
    LOST_REPLY = "reply lost"
    LATE = "acts late"
    """The caller has given up when the request arrives."""
    REPEATED = "acts twice"
    SLOW = "slow"


@dataclass
class Weather:
    """How bad the network is: the chance of each fate, by verb where one is made common."""

    odds: dict[Fate, float] = field(default_factory=dict)
    common: dict[str, tuple[Fate, float]] = field(default_factory=dict)
    """Points where a rare branch is made common: verb or point -> fate and its chance."""

    @classmethod
    def drawn(cls, draw: random.Random) -> Weather:
        """Weather for one run: few kinds of trouble at a time, now mild, now hard."""
        fates = [fate for fate in Fate if fate is not Fate.FINE and draw.random() < 0.5]
        hardness = draw.choice([0.01, 0.03, 0.1, 0.2])
        points = ["swap", "claim", "extend", "add", "note", "lock", "dependents", "cancels"]
        common = {
            verb: (draw.choice([fate for fate in Fate if fate is not Fate.FINE]), 0.5)
            for verb in points
            if draw.random() < 0.15
        }
        if draw.random() < 0.5:
            common[REAPING] = (Fate.SLOW, 0.9)
        return cls({fate: draw.random() * hardness for fate in fates}, common)

    def fate(self, verb: str, point: str, draw: random.Random) -> Fate:
        """Draw what becomes of a call."""
        fate, randomness = self.common.get(point) or self.common.get(verb) or (Fate.FINE, 0.0)
        if draw.random() < randomness:
            return fate
        randomness = draw.random()
        for fate, odds in self.odds.items():
            if randomness < odds:
                return fate
            randomness -= odds
        return Fate.FINE


class Network:
    """Carries calls between processes and stores."""

    def __init__(self, loop: SimLoop, draw: random.Random, record: Record) -> None:
        self.weather = Weather()
        self.cut: set[str] = set()
        """Processes that reach nothing."""
        self.outage = False
        self._loop = loop
        self._draw = draw
        self._record = record
        self._context = contextvars.Context()
        self._context.run(PROCESS.set, WORLD)

    async def call(
        self, sender: str, verb: str, act: Act, *, point: str = "", at_once: bool
    ) -> Any:
        """Make one call, or fail to."""
        start = self._start_at_once if at_once else self._start
        fate = self._fate(sender, verb, point)
        if fate is not Fate.FINE:
            self._record.happened(fate.value)
            self._record.note(sender, f"{verb}: {fate}")
        delay = self._latency()
        if fate is Fate.LOST_REQUEST:
            await asyncio.sleep(self._draw.choice([delay, PATIENCE]))
            raise StoreUnavailableError(f"{verb}: {fate}")
        if fate is Fate.LATE:
            self._later(PATIENCE + self._draw.random() * 12, act, start)
            await asyncio.sleep(PATIENCE)
            raise StoreUnavailableError(f"{verb}: {fate}")
        if fate is Fate.SLOW:
            delay = self._draw.random() * 3.0
        answer = await self._acted(act, delay, start)
        if fate is Fate.REPEATED:
            self._later(self._draw.random() * 8, act, start)
        if fate is Fate.LOST_REPLY:
            await asyncio.sleep(self._draw.choice([delay, PATIENCE]))
            raise StoreUnavailableError(f"{verb}: {fate}")
        await asyncio.sleep(self._latency())
        return answer

    def _fate(self, sender: str, verb: str, point: str) -> Fate:
        if self.outage or sender in self.cut:
            return self._draw.choice([Fate.LOST_REQUEST, Fate.LOST_REPLY])
        fate = self.weather.fate(verb, point, self._draw)
        if verb in HINTS and fate in (Fate.LATE, Fate.REPEATED):
            return Fate.SLOW
        return fate

    async def _acted(self, act: Act, delay: float, start: Start) -> Any:
        """Execute a request when it arrives; the sender may die meanwhile."""
        answer = self._loop.create_future()

        async def arrive() -> None:
            try:
                value = await act()
            except Exception as error:  # noqa: BLE001  # it belongs to the caller
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(value)

        self._loop.call_later(delay, start, arrive, context=self._context)
        return await answer

    def _later(self, delay: float, act: Act, start: Start) -> None:
        """Execute a request whose caller has stopped waiting."""

        async def unheard() -> None:
            try:
                await act()
            except Exception as error:  # noqa: BLE001  # no caller waits for it
                self._record.note(WORLD, f"unheard: {error!r}")

        self._loop.call_later(delay, start, unheard, context=self._context)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop.create_task(work())

    def _start_at_once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Execute a request of a store that never waits, without the cost of a task."""
        run_now(work())

    def _latency(self) -> float:
        return self._draw.uniform(*LATENCY)


class FaultyStore:
    """A process's way to the store; its verbs are made from the protocol below."""

    def __init__(self, inner: Store, network: Network, record: Record, process: str) -> None:
        self._inner = inner
        self.capabilities = inner.capabilities
        self.not_notified_because = ""
        self._network = network
        self._record = record
        self._process = process

    def now(self) -> datetime:
        return self._inner.now()

    async def start(self) -> FaultyStore:
        await self._inner.start()
        return self

    async def close(self) -> None:
        """A process that leaves does not close the store of others."""


def _faulty(verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(self: FaultyStore, *args: Any, **kwargs: Any) -> Any:
        async def act() -> Any:
            answer = await getattr(self._inner, verb)(*args, **kwargs)
            self._record.acted(self._process, verb, args, kwargs, answer)
            return answer

        self._record.sent(self._process, verb, args)
        at_once = isinstance(self._inner, MemoryStore) and verb not in HINTS
        point = REAPING if verb == "swap" and _is_reaping(args[0]) else ""
        return await self._network.call(self._process, verb, act, point=point, at_once=at_once)

    call.__name__ = verb
    return call


def _is_reaping(changes: Sequence[Change]) -> bool:
    return any(edge.event is Event.LAPSE for change in changes for edge in change.after.trail)


for _verb in VERBS:
    setattr(FaultyStore, _verb, _faulty(_verb))
