"""Calls that hang are ended, each at its time, by one timer."""

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
def lines() -> Iterator[Callable[[], Ends]]:
    """Makes connections, and closes them afterwards."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(Ends())


class Ends:
    """Both ends of something with a file number, which is all that is asked of a connection."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.connection = cast("AsyncConnection[Row]", self.ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.close()
        self.theirs.close()

    @property
    def is_cut(self) -> bool:
        self.theirs.setblocking(False)
        try:
            return self.theirs.recv(1) == b""
        except BlockingIOError:
            return False


async def test_only_calls_that_take_too_long_are_cut_each_at_its_time(
    lines: Callable[[], Ends],
) -> None:
    alarm, late, later, quick = CallTimeouts(0.5), lines(), lines(), lines()

    alarm.start(late.connection)
    alarm.start(quick.connection)
    await asyncio.sleep(0.4)
    alarm.start(later.connection)
    alarm.stop(quick.connection)
    await until(lambda: late.is_cut)
    assert (False, False) == (later.is_cut, quick.is_cut)

    await until(lambda: later.is_cut)
    assert not quick.is_cut


async def test_alarm_rings_again_after_there_was_nothing_to_watch(
    lines: Callable[[], Ends],
) -> None:
    alarm, first, second = CallTimeouts(0.05), lines(), lines()
    alarm.start(first.connection)
    alarm.stop(first.connection)
    await asyncio.sleep(0.1)

    alarm.start(second.connection)
    await until(lambda: second.is_cut)

    assert not first.is_cut
