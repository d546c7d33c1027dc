"""Waiting for work on BullMQ's markers.

Whoever makes a job ready leaves a marker; taking it out wakes one worker, which leaves another
when more is ready. One that led to no job is put back, and from then on the queue is merely
watched, until there is a job for us in it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

from holdfast.store.redis.client import RedisClient
from holdfast.store.redis.settings import RedisKeys

LONGEST = 5.0
"""Seconds of one blocking call at most; a connection that hangs is noticed that soon."""
WATCH = 0.1
"""Seconds between two looks at a queue that is merely watched."""
SEEN = 60.0
"""Seconds for which a connection that only bears a name is taken to be there."""
READY = b"0"
"""The marker of ready jobs; the other one tells when the next job is due."""

Left = Callable[[Sequence[str]], Awaitable[list[bytes]]]
"""Puts back the markers of queues that still have ready jobs; returns their names."""


class Arrivals:
    """A number that moves when there may be work."""

    def __init__(self, client: RedisClient, keys: RedisKeys, left: Left) -> None:
        self._client = client
        self._keys = keys
        self._left = left
        self._number = 0
        self._rung = asyncio.Event()
        self._served: set[str] = set()
        """Queues that somebody here takes jobs from."""
        self._owing: set[str] = set()
        """Queues whose marker was taken, and no job since."""
        self._watched: set[str] = set()
        """Queues whose ready jobs are not for us."""
        self._newest: dict[str, object] = {}
        self._seen_until: dict[str, float] = {}
        self._waiters: dict[object, Sequence[str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looked_for: frozenset[str] = frozenset()

    def ring(self) -> None:
        """Move the number, and wake who waits in this process."""
        self._number += 1
        self._rung.set()
        self._rung = asyncio.Event()

    def claimed(self, queues: Sequence[str], taken: Iterable[str]) -> None:
        """Note from which queues somebody wanted jobs, and from which there were some."""
        self._served.update(queues)
        again = self._watched.intersection(queues)
        self._watched -= again
        self._owing |= again
        self._owing.difference_update(taken)

    async def wait(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        """Return the number once it differs from ``seen``, or after ``wait``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        waiter = object()
        self._waiters[waiter] = tuple(queues)
        try:
            while self._number == seen and (left := deadline - loop.time()) > 0:
                looking = self._looking_for(queues)
                rung = asyncio.ensure_future(self._rung.wait())
                try:
                    await asyncio.wait(
                        {looking, rung}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    rung.cancel()
                if looking.done() and not looking.cancelled():
                    looking.result()
        finally:
            del self._waiters[waiter]
        return self._number

    async def close(self) -> None:
        """Look out no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            self._looking = None

    def _looking_for(self, queues: Sequence[str]) -> asyncio.Task[None]:
        """Return the one look-out of this process; it goes on when who asked for it has left.

        To call it off would cost its connection.
        """
        if self._looking is not None and not self._looking.done():
            if self._looked_for.issuperset(queues):
                return self._looking
            self._looking.cancel()
        self._looked_for = frozenset(q for each in self._waiters.values() for q in each)
        self._looking = asyncio.ensure_future(self._look(sorted(self._looked_for)))
        self._looking.add_done_callback(_heed)
        return self._looking

    async def _look(self, queues: Sequence[str]) -> None:
        """Look out for work until there is some or a blocking call takes long enough."""
        if owing := self._owing.intersection(queues):
            self._owing -= owing
            names = await self._left(sorted(owing))
            self._watched.update(name.decode() for name in names)
        mine = [q for q in queues if q in self._served and q not in self._watched]
        seconds = LONGEST if len(mine) == len(queues) else WATCH
        if mine:
            await self._be_seen(mine)
            await self._pop(mine, seconds)
        else:
            await asyncio.sleep(seconds)
        for queue in queues:
            if queue not in mine:
                await self._watch(queue)

    async def _be_seen(self, queues: Sequence[str]) -> None:
        """Have a connection under each queue's name, by which BullMQ lists who works for it."""
        now = asyncio.get_running_loop().time()
        for queue in queues[1:]:
            if now >= self._seen_until.get(queue, 0.0):
                name = self._keys.client_name(queue)
                await self._client.blocking(timedelta(0), "PING", name=name)
                self._seen_until[queue] = now + SEEN

    async def _pop(self, queues: Sequence[str], seconds: float) -> None:
        markers = {self._keys.queue(queue, "marker"): queue for queue in queues}
        answer = await self._client.blocking(
            timedelta(seconds=seconds),
            *("BZPOPMIN", *markers, f"{max(seconds, 0.001):.3f}"),
            name=self._keys.client_name(queues[0]),
        )
        if answer is not None:
            marker, member, _ = answer
            queue = markers[marker.decode()]
            if member == READY:
                self._owing.add(queue)
            self.ring()
            if not self._waiters:
                await self._give_back(queue)

    async def _give_back(self, queue: str) -> None:
        """Leave a marker that nobody here waits for any more to somebody else."""
        self._owing.discard(queue)
        await self._left([queue])

    async def _watch(self, queue: str) -> None:
        """Ring when anything was told in a queue since the last look."""
        stream = self._keys.queue(queue, "events")
        newest = [
            each[0]
            for each in await self._client.command("XREVRANGE", stream, "+", "-", "COUNT", 1)
        ]
        if queue not in self._newest or self._newest[queue] != newest:
            self._newest[queue] = newest
            self.ring()


def _heed(looking: asyncio.Task[None]) -> None:
    """Take note of how a look-out ended; nobody may be left to ask."""
    if not looking.cancelled():
        looking.exception()
