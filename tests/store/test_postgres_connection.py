"""How a connection listens to its server, whichever event loop it lives on."""

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

if TYPE_CHECKING:
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "line"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_line_that_broke_with_an_answer_is_not_waited_for(run: object) -> None:
    """uvloop tells of an error once, and here it comes together with something to read."""
    assert callable(run)
    run(_ask_a_server_that_dies_with_its_answer())


async def _ask_a_server_that_dies_with_its_answer() -> None:
    ours, theirs = _connected()
    line = Connection.__new__(Connection)
    line.pgconn = SimpleNamespace(socket=ours.fileno(), status=ConnStatus.BAD)  # type: ignore[assignment]
    answer = asyncio.create_task(line._until_ready(Wait.R))
    await asyncio.sleep(0.05)
    theirs.send(b"answer")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()  # at once, without goodbye
    assert Ready.R == await answer
    assert b"answer" == os.read(ours.fileno(), 100)

    async with asyncio.timeout(1):
        assert Ready.R == await line._until_ready(Wait.R)

    line._stop_reading()
    ours.close()


async def test_call_that_is_cancelled_while_it_is_being_sent_says_so(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)
    ) as store:
        large = [make(str(n), now=store.now(), payload="x" * 1_000_000) for n in range(16)]
        await store.add([make(f"{n} small", now=store.now()) for n in range(16)])  # is prepared
        await store._state.wake.stop()  # which would need the connection, too
        (warm,) = store._state.pool._warm
        backend = warm.connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)  # so that it reads nothing
        sending = asyncio.create_task(store.add(large))
        await asyncio.sleep(0.2)
        sending.cancel()
        os.kill(backend, signal.SIGCONT)

        with pytest.raises(asyncio.CancelledError):
            await sending

        assert [None] == await store.get(["nobody"])


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]
