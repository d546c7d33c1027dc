"""A worker process under a supervisor.

The supervisor says what to do over the inherited socket, and later to drain or to halt. A
signal sent to this process drains it, however often it comes: only the supervisor halts. When
the supervisor is gone, the process drains and leaves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from holdfast.errors import HoldfastError, StoreError
from holdfast.observe import Observer
from holdfast.runtime.event_loop import run
from holdfast.worker.loading import load_app, load_object
from holdfast.worker.supervisor.protocol import DRAIN, HALT, LARGEST, Reporter, WorkerPlan
from holdfast.worker.worker import Worker

CANNOT_START = 3
"""Exit code of a process that found no app to work for."""

LOOK_AFTER_PARENT = 1.0


def main() -> None:
    """Run one worker until it is told to stop."""
    line = socket.socket(fileno=int(sys.argv[1]))
    plan = msgspec.msgpack.decode(line.recv(LARGEST), type=WorkerPlan)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        worker, tether = _prepared(plan, line)
    except (HoldfastError, ImportError) as error:
        print(f"holdfast: {error}", file=sys.stderr)  # noqa: T201  # nobody else can say it
        sys.exit(CANNOT_START)
    tether.ready()
    try:
        run(_work(worker, line, burst=plan.burst))
    except StoreError as error:
        print(f"holdfast: {error}", file=sys.stderr)  # noqa: T201  # as above
        sys.exit(1)


def _prepared(plan: WorkerPlan, line: socket.socket) -> tuple[Worker, Reporter]:
    app = load_app(plan.app)
    observer = cast("Callable[[], Observer]", load_object(plan.observer))()
    tether = Reporter(line)
    worker = Worker(
        app,
        queues=plan.queues,
        slots=plan.slots,
        grace=plan.grace,
        maintenance=plan.maintenance,
        observer=observer,
        name=plan.name,
        listener=tether,
    )
    return worker, tether


async def _work(worker: Worker, line: socket.socket, *, burst: bool) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.drain)
    loop.add_reader(line.fileno(), _obey, worker, line)
    watch = loop.create_task(_outlive_nobody(worker, os.getppid()))
    try:
        await worker.run(burst=burst)
    finally:
        watch.cancel()
        loop.remove_reader(line.fileno())


def _obey(worker: Worker, line: socket.socket) -> None:
    try:
        order = line.recv(LARGEST)
    except BlockingIOError:
        return
    if order == HALT:
        worker.halt()
    elif order == DRAIN:
        worker.drain()
    else:
        asyncio.get_running_loop().remove_reader(line.fileno())
        worker.drain()


async def _outlive_nobody(worker: Worker, parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing tells of a parent's death
        await asyncio.sleep(LOOK_AFTER_PARENT)
    worker.drain()
