"""The connection that receives notices, and the locks that show what its process waits for.

A process that waits for jobs of a queue holds a shared advisory lock under the queue's name. So
a sender finds in ``pg_locks`` whom to wake, and the entry of a process that dies disappears.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator

import psycopg
from psycopg import AsyncConnection

from holdfast.errors import HoldfastError
from holdfast.store.postgres.errors import message_of
from holdfast.store.postgres.pool import Pool, shut_down
from holdfast.store.postgres.rows import Row

PROBE_EVERY = 5.0
"""Seconds of silence after which the listening connection is checked."""
PROBE_WITHIN = 5.0
RECONNECT_AFTER = 0.5
CANCEL_EVERY = 0.1

MOST_NAMES = 16
"""How many names a process is listed under at most: the server has room for few thousand locks."""
ANY_NAME = ""
"""The name of a process that waits under more names than that."""

_LOCK = "SELECT pg_try_advisory_lock_shared(hashtext('{}'), hashtext(n)) FROM unnest(%s::text[]) n"
_UNLOCK = "SELECT pg_advisory_unlock_shared(hashtext('{}'), hashtext(n)) FROM unnest(%s::text[]) n"


def own_channel(pid: int) -> str:
    """Return the channel of the one process whose listening session has this pid."""
    return f"holdfast_wake_{pid}"


class Listener:
    """Listens to the channel of all processes and to one of its own."""

    def __init__(
        self,
        pool: Pool,
        schema: str,
        *,
        on_listening: Callable[[], None],
        on_listed: Callable[[set[str]], None],
        on_notice: Callable[[str, bool], None],
    ) -> None:
        self.channel = f"holdfast_{schema}"
        self.listening = asyncio.Event()
        self.pid = 0
        """The pid of the listening session, 0 while there is none."""
        self.error = ""
        """Why listening failed the last time, if it did."""
        self._pool = pool
        self._locks = f'holdfast wake "{schema}"'
        self._on_listening = on_listening
        self._on_listed = on_listed
        self._on_notice = on_notice
        self._names: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._is_busy = False
        self._broken: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    def reset(self) -> None:
        """Prepare for the loop that runs now."""
        self.listening, self._changed = asyncio.Event(), asyncio.Event()

    def start(self, dsn: str) -> None:
        """Listen until stopped, whatever happens to the connection."""
        self._task = asyncio.create_task(self._run(dsn))

    async def stop(self) -> None:
        """Close the connection."""
        while self._task is not None and not self._task.done():
            # Once may not be enough: until Python 3.12 wait_for loses a cancellation that arrives
            # together with the result it waits for.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_EVERY)
        self._task = None
        self.listening.clear()

    def list_under(self, names: frozenset[str]) -> None:
        """Show that this process waits for what has these names, and for nothing else."""
        if len(names) > MOST_NAMES:
            names = frozenset({ANY_NAME})
        if names != self._names:
            self._names = names
            self._changed.set()

    async def _run(self, dsn: str) -> None:
        while True:
            try:
                async with await self._pool.connect(dsn) as connection:
                    await self._serve(connection)
            except HoldfastError as error:
                self.error = str(error)
            except Exception as error:  # noqa: BLE001  # whatever the driver raises: connect again
                self.error = message_of(error)
            finally:
                self.pid = 0
                self.listening.clear()
            await asyncio.sleep(RECONNECT_AFTER)

    async def _serve(self, connection: AsyncConnection[Row]) -> None:
        pid, self._broken = connection.info.backend_pid, None
        connection.add_notify_handler(
            lambda notice: self._on_notice(notice.payload, notice.channel != self.channel)
        )
        with self._reading(connection):
            await self._execute(connection, f'LISTEN "{own_channel(pid)}"'.encode())
            await self._execute(connection, f'LISTEN "{self.channel}"'.encode())
            self.pid = pid
            self._on_listening()
            self.listening.set()
            listed: frozenset[str] = frozenset()
            while True:
                listed = await self._list(connection, listed)
                if not await self._is_changed():
                    await self._probe(connection)
                if self._broken is not None:
                    raise self._broken

    async def _list(
        self, connection: AsyncConnection[Row], listed: frozenset[str]
    ) -> frozenset[str]:
        """Take and release locks; return the names that the process is listed under now."""
        self._changed.clear()
        wanted = self._names
        for sql, names in ((_LOCK, wanted - listed), (_UNLOCK, listed - wanted)):
            if names:
                text = sql.format(self._locks)
                await self._execute(connection, text.encode(), [sorted(names)])
        if new := set(wanted - listed):
            self._on_listed(new)  # what arrived just before was sent to nobody
        return wanted

    async def _is_changed(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_EVERY):
                await self._changed.wait()
                return True
        return False

    async def _probe(self, connection: AsyncConnection[Row]) -> None:
        """Check that the connection is alive and leads to a primary: silence proves neither."""
        timer = asyncio.get_running_loop().call_later(PROBE_WITHIN, shut_down, connection)
        try:
            rows = await self._execute(connection, b"SHOW transaction_read_only")
            if rows == [("on",)]:
                raise psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")
        finally:
            timer.cancel()

    async def _execute(
        self, connection: AsyncConnection[Row], sql: bytes, params: list[object] | None = None
    ) -> list[Row]:
        self._is_busy = True
        try:
            cursor = await connection.execute(sql, params)
            rows = await cursor.fetchall() if cursor.description else []
        finally:
            self._is_busy = False
        self._take_notices(connection)  # that came in the same packet
        return rows

    @contextlib.contextmanager
    def _reading(self, connection: AsyncConnection[Row]) -> Iterator[None]:
        """Read notices as they arrive: psycopg's own way costs several times as much."""
        loop = asyncio.get_running_loop()
        with socket.socket(fileno=os.dup(connection.fileno())) as reader:
            loop.add_reader(reader, self._on_readable, connection)
            try:
                yield
            finally:
                loop.remove_reader(reader)

    def _on_readable(self, connection: AsyncConnection[Row]) -> None:
        if self._is_busy:  # the statement that runs reads them
            return
        try:
            connection.pgconn.consume_input()
        except psycopg.Error as error:
            self._broken = error
            self._changed.set()
        else:
            self._take_notices(connection)

    def _take_notices(self, connection: AsyncConnection[Row]) -> None:
        while notice := connection.pgconn.notifies():
            self._on_notice(notice.extra.decode(), notice.relname.decode() != self.channel)
