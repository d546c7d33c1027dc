"""One timer ends every call that hangs, each after its own timeout."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, cast

import pytest

from holdfast.store.postgres.pool import CallTimeouts
from tests.worker.rig import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg import AsyncConnection

    from holdfast.store.postgres.rows import Row

pytestmark = pytest.mark.postgres


@pytest.fixture
def connections() -> Iterator[Callable[[], SocketPair]]:
    """Make connections, and close them afterwards."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(SocketPair())


class SocketPair:
    """Both ends of a socket, in place of a connection: the timer only needs its descriptor."""

    def __init__(self) -> None:
        self.local, self.remote = socket.socketpair()
        self.connection = cast("AsyncConnection[Row]", self.local)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.local.close()
        self.remote.close()

    @property
    def is_closed(self) -> bool:
        self.remote.setblocking(False)
        try:
            return self.remote.recv(1) == b""
        except BlockingIOError:
            return False


async def test_only_calls_that_take_too_long_time_out_each_in_turn(
    connections: Callable[[], SocketPair],
) -> None:
    timeouts, late, later, quick = CallTimeouts(0.5), connections(), connections(), connections()

    timeouts.start(late.connection)
    timeouts.start(quick.connection)
    await asyncio.sleep(0.4)  # the calls begin at different times
    timeouts.start(later.connection)
    timeouts.stop(quick.connection)
    await until(lambda: late.is_closed)
    assert (False, False) == (later.is_closed, quick.is_closed)

    await until(lambda: later.is_closed)
    assert not quick.is_closed


async def test_timer_starts_again_after_all_calls_have_ended(
    connections: Callable[[], SocketPair],
) -> None:
    timeouts, first, second = CallTimeouts(0.05), connections(), connections()
    timeouts.start(first.connection)
    timeouts.stop(first.connection)
    await asyncio.sleep(0.1)  # until the timer has found nothing

    timeouts.start(second.connection)
    await until(lambda: second.is_closed)

    assert not first.is_closed
