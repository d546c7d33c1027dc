"""Waking workers that wait for jobs: a counter in this process, NOTIFY between processes.

Both are hints. Notices are sent after the commit and outside it, at most one per queue and
moment: inside, every commit in the database waits for NOTIFY's global lock. The first is sent at
once; the later ones of a stream are grouped, or each submission would pay for one.
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
from holdfast.store.postgres.errors import message_of
from holdfast.store.postgres.pool import Pool, shut_down
from holdfast.store.postgres.rows import Row

EVERY_QUEUE = ""
PROBE_EVERY = 5.0
"""Seconds of silence after which the listening connection is checked."""
PROBE_WITHIN = 5.0
RECONNECT_AFTER = 0.5
LISTEN_WITHIN = 5.0
"""Seconds in which a listening connection should be open."""
CANCEL_EVERY = 0.1
PAUSE, STREAM_PAUSE = 0.005, 0.02
"""Seconds between two notices, and between those of a stream."""


class WakeCounter:
    """Counts, per queue, how often there may have been new work."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._counts[queue] += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def count(self, queues: Collection[str]) -> int:
        return self._counts[EVERY_QUEUE] + sum(self._counts[queue] for queue in set(queues))

    async def wait(self, deadline: float) -> bool:
        """Wait for a notice until an instant of the loop's clock; return whether there was one."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True


class Wake:
    """Sends notices to other processes and receives theirs."""

    def __init__(self, pool: Pool, schema: str, listen_dsn: str | None) -> None:
        self.counter = WakeCounter()
        self.channel = f"holdfast_{schema}"
        self._pool = pool
        self._listen_dsn = listen_dsn
        self._sender = Randomness().token()
        self._pending: set[str] = set()
        self._wanted = asyncio.Event()
        self._sender_task: asyncio.Task[None] | None = None
        self._listener_task: asyncio.Task[None] | None = None
        self._stopping = False
        self.listening = asyncio.Event()
        self._echo = asyncio.Event()
        """Set when this process receives a notice of its own."""
        self.error = ""
        """Why listening failed the last time, if it did."""

    def start(self) -> None:
        self._stopping = False
        self._wanted, self.listening, self._echo = _events()
        self._sender_task = asyncio.create_task(self._send_loop())

    def listen(self) -> None:
        """Receive notices from now on; a process that waits for no work needs no connection."""
        if self._listener_task is None and self._listen_dsn is not None and not self._stopping:
            self._listener_task = asyncio.create_task(self._listen_loop(self._listen_dsn))

    async def is_notified(self) -> bool:
        """Whether notices arrive, checked within a few seconds by a notice of its own."""
        self.listen()
        try:
            async with asyncio.timeout(LISTEN_WITHIN if self._listener_task else 0):
                await self.listening.wait()
                self._echo.clear()
                await self._pool.run("notify", self.notice({self._sender}, self._sender))
                self.error = "notices sent here do not arrive there"
                await self._echo.wait()
                self.error = ""
                return True
        except TimeoutError:
            pass
        except HoldfastError as error:
            self.error = str(error)
        return False

    async def stop(self) -> None:
        """Send pending notices, then stop."""
        self._stopping = True
        self._wanted.set()
        if self._sender_task is not None:
            await asyncio.wait([self._sender_task])
        while self._listener_task is not None and not self._listener_task.done():
            # Once may not be enough: until Python 3.12 wait_for loses a cancellation that arrives
            # together with the result it waits for, here a notice.
            self._listener_task.cancel()
            await asyncio.wait([self._listener_task], timeout=CANCEL_EVERY)
        self._sender_task = self._listener_task = None
        self.counter.notify([EVERY_QUEUE])

    def notify(self, queues: Collection[str]) -> None:
        """Wake waiters of this process now, and those of other processes in a moment."""
        if queues:
            self.counter.notify(queues)
            if not self._pending.issuperset(queues):
                self._pending.update(queues)
                self._wanted.set()

    def notice(self, queues: Collection[str], sender: str = EVERY_QUEUE) -> dict[str, object]:
        """Return the parameters of a notice: the queues, and the sender, which may ignore it."""
        payloads = [f"{sender} {queue}" for queue in sorted(queues)]
        return {"channel": self.channel, "queues": Texts(payloads)}

    async def _send_loop(self) -> None:
        pause = PAUSE
        while not (self._stopping and not self._pending):
            await self._wanted.wait()
            with contextlib.suppress(Exception):  # a lost notice is a hint less; others poll
                await self._send()
            if not self._stopping:
                await asyncio.sleep(pause)
                pause = STREAM_PAUSE if self._wanted.is_set() else PAUSE

    async def _send(self) -> None:
        self._wanted.clear()
        queues, self._pending = self._pending, set()
        if queues:
            await self._pool.run("notify", self.notice(queues, self._sender))

    async def _listen_loop(self, dsn: str) -> None:
        while not self._stopping:
            try:
                async with await self._pool.connect(dsn) as connection:
                    await self._listen(connection)
            except HoldfastError as error:
                self.error = str(error)
            except Exception as error:  # noqa: BLE001  # whatever the driver raises: connect again
                self.error = message_of(error)
            self.listening.clear()
            await asyncio.sleep(RECONNECT_AFTER)

    async def _listen(self, connection: AsyncConnection[Row]) -> None:
        await connection.execute(f'LISTEN "{self.channel}"'.encode())
        self.counter.notify([EVERY_QUEUE])  # work may have arrived while this did not listen
        self.listening.set()
        while True:
            async for notice in connection.notifies(timeout=PROBE_EVERY):
                sender, _, queue = notice.payload.partition(" ")
                if sender == self._sender:
                    self._echo.set()
                else:
                    self.counter.notify([queue])
            await self._probe(connection)

    async def _probe(self, connection: AsyncConnection[Row]) -> None:
        """Check that the connection is alive and leads to a primary: silence proves neither."""
        timer = asyncio.get_running_loop().call_later(PROBE_WITHIN, shut_down, connection)
        try:
            cursor = await connection.execute(b"SHOW transaction_read_only")
            if await cursor.fetchone() == ("on",):
                raise psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")
        finally:
            timer.cancel()


def _events() -> tuple[asyncio.Event, asyncio.Event, asyncio.Event]:
    """Return new events, for the loop that runs now."""
    return asyncio.Event(), asyncio.Event(), asyncio.Event()
