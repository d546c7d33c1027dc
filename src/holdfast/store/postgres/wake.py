"""Waking whoever waits for work: a bell in this process, NOTIFY between processes.

Both are hints. Notices are sent after the commit and outside it, at most one per queue and
moment: inside, every commit in the database would queue for NOTIFY's global lock. The first goes
out at once; whoever submits one job after the other would else pay for a notice with each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterable

import psycopg
from psycopg import AsyncConnection

from holdfast.errors import HoldfastError
from holdfast.runtime.randomness import Randomness
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.errors import words
from holdfast.store.postgres.pool import Pool, cut
from holdfast.store.postgres.rows import Row

EVERY_QUEUE = ""
PROBE_EVERY = 5.0
"""Seconds of silence after which the listening connection is asked whether it lives."""
PROBE_WITHIN = 5.0
RECONNECT_AFTER = 0.5
HEARS_WITHIN = 5.0
"""Seconds in which a listening connection should have been opened."""
CANCEL_EVERY = 0.1
APART, FAR_APART = 0.005, 0.02
"""Seconds between two notices, and between those of a stream."""


class NoticeBell:
    """Counts, per queue, how often there may have been new work."""

    def __init__(self) -> None:
        self._rings: Counter[str] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._rings[queue] += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    def count(self, queues: Collection[str]) -> int:
        return self._rings[EVERY_QUEUE] + sum(self._rings[queue] for queue in set(queues))

    async def wait(self, deadline: float) -> bool:
        """Wait for a ring until a moment of the loop's clock; whether there was one."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)
        return True


class Wake:
    """Carries rings from process to process."""

    def __init__(self, database: Pool, schema: str, listen_dsn: str | None) -> None:
        self.bell = NoticeBell()
        self.channel = f"holdfast_{schema}"
        self._database = database
        self._listen_dsn = listen_dsn
        self._sender = Randomness().token()
        self._pending: set[str] = set()
        self._wanted = asyncio.Event()
        self._sender_task: asyncio.Task[None] | None = None
        self._listener_task: asyncio.Task[None] | None = None
        self._stopping = False
        self.listening = asyncio.Event()
        self._echo = asyncio.Event()
        """Set when this process hears itself."""
        self.trouble = ""
        """Why listening failed the last time, if it did."""

    def start(self) -> None:
        self._stopping = False
        self._wanted, self.listening, self._echo = _events()
        self._sender_task = asyncio.create_task(self._send_loop())

    def listen(self) -> None:
        """Hear what others ring from now on; who never waits for work needs no line for that."""
        if self._listener_task is None and self._listen_dsn is not None and not self._stopping:
            self._listener_task = asyncio.create_task(self._listen_loop(self._listen_dsn))

    async def hears(self) -> bool:
        """Whether others are heard, given a moment: whoever hears them hears himself."""
        self.listen()
        try:
            async with asyncio.timeout(HEARS_WITHIN if self._listener_task else 0):
                await self.listening.wait()
                self._echo.clear()
                await self._database.run("ring", self.notice({self._sender}, self._sender))
                self.trouble = "what is sent here is not heard there"
                await self._echo.wait()
                self.trouble = ""
                return True
        except TimeoutError:
            pass
        except HoldfastError as error:
            self.trouble = str(error)
        return False

    async def stop(self) -> None:
        """Send what is still to be sent, then stop."""
        self._stopping = True
        self._wanted.set()
        if self._sender_task is not None:
            await asyncio.wait([self._sender_task])
        while self._listener_task is not None and not self._listener_task.done():
            # Once may not be enough: until Python 3.12 a cancellation is lost when it comes in
            # the same moment as what wait_for waits for, here a notice.
            self._listener_task.cancel()
            await asyncio.wait([self._listener_task], timeout=CANCEL_EVERY)
        self._sender_task = self._listener_task = None
        self.bell.ring([EVERY_QUEUE])

    def ring(self, queues: Collection[str]) -> None:
        """Wake waiters here now, and elsewhere in a moment."""
        if queues:
            self.bell.ring(queues)
            if not self._pending.issuperset(queues):
                self._pending.update(queues)
                self._wanted.set()

    def notice(self, queues: Collection[str], sender: str = EVERY_QUEUE) -> dict[str, object]:
        """What a notice is made of: who sends, who may then ignore it, and the queues."""
        payloads = [f"{sender} {queue}" for queue in sorted(queues)]
        return {"channel": self.channel, "queues": Texts(payloads)}

    async def _send_loop(self) -> None:
        apart = APART
        while not (self._stopping and not self._pending):
            await self._wanted.wait()
            with contextlib.suppress(HoldfastError):
                await self._send()
            if not self._stopping:
                await asyncio.sleep(apart)
                apart = FAR_APART if self._wanted.is_set() else APART

    async def _send(self) -> None:
        self._wanted.clear()
        queues, self._pending = self._pending, set()
        if queues:
            await self._database.run("ring", self.notice(queues, self._sender))

    async def _listen_loop(self, dsn: str) -> None:
        while not self._stopping:
            try:
                async with await self._database.connect(dsn) as connection:
                    await self._listen(connection)
            except HoldfastError as error:
                self.trouble = str(error)
            except (psycopg.Error, OSError) as error:
                self.trouble = words(error)
            self.listening.clear()
            await asyncio.sleep(RECONNECT_AFTER)

    async def _listen(self, connection: AsyncConnection[Row]) -> None:
        await connection.execute(f'LISTEN "{self.channel}"'.encode())
        self.bell.ring([EVERY_QUEUE])  # anything may have come while nobody listened
        self.listening.set()
        while True:
            async for notice in connection.notifies(timeout=PROBE_EVERY):
                sender, _, queue = notice.payload.partition(" ")
                if sender == self._sender:
                    self._echo.set()
                else:
                    self.bell.ring([queue])
            await self._probe(connection)

    async def _probe(self, connection: AsyncConnection[Row]) -> None:
        """Ask whether the line is alive and leads to a primary; others may be silent for ever."""
        alarm = asyncio.get_running_loop().call_later(PROBE_WITHIN, cut, connection)
        try:
            cursor = await connection.execute(b"SHOW transaction_read_only")
            if await cursor.fetchone() == ("on",):
                raise psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")
        finally:
            alarm.cancel()


def _events() -> tuple[asyncio.Event, asyncio.Event, asyncio.Event]:
    """Return new events, for the loop that runs now."""
    return asyncio.Event(), asyncio.Event(), asyncio.Event()
