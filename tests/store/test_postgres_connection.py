"""How a connection reads from its socket, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import uvloop
from psycopg.pq import ConnStatus
from psycopg.waiting import Ready, Wait

from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.connection import Connection
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of

if TYPE_CHECKING:
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "connection"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_connection_that_breaks_with_a_result_does_not_hang(run: object) -> None:
    """uvloop reports an error once, and here together with input."""
    assert callable(run)
    run(_read_from_a_server_that_dies_with_its_result())


async def _read_from_a_server_that_dies_with_its_result() -> None:
    local, remote = _connected()
    connection = Connection.__new__(Connection)
    connection.pgconn = SimpleNamespace(socket=local.fileno(), status=ConnStatus.BAD)  # type: ignore[assignment]
    # The wait itself: what calls it would need a server.
    result = asyncio.create_task(connection._until_ready(Wait.R))
    await asyncio.sleep(0.05)  # until it waits for the socket
    remote.send(b"result")
    remote.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    remote.close()  # at once, with a reset
    assert Ready.R == await result
    assert b"result" == os.read(local.fileno(), 100)

    async with asyncio.timeout(1):
        assert Ready.R == await connection._until_ready(Wait.R)  # as above

    connection._stop_reading()  # close() would need a server
    local.close()


async def test_call_cancelled_while_it_is_sent_raises_cancelled_error(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)
    ) as store:
        large = [make(str(n), now=store.now(), payload="x" * 1_000_000) for n in range(16)]
        await store.add(
            [make(f"{n} small", now=store.now()) for n in range(16)]
        )  # prepares the statement
        await state_of(store).wake.stop()  # it needs the connection, too
        (warm,) = state_of(store).pool._warm  # a borrowed one would not be used next
        backend = warm.connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)  # so that it reads nothing
        sending = asyncio.create_task(store.add(large))
        await asyncio.sleep(0.2)  # until the socket takes no more
        sending.cancel()
        os.kill(backend, signal.SIGCONT)

        with pytest.raises(asyncio.CancelledError):
            await sending

        assert [None] == await store.get(["unknown"])


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        local = socket.create_connection(listener.getsockname())
        return local, listener.accept()[0]
