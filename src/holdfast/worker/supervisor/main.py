"""The main function of a worker process under a supervisor.

The supervisor sends the settings over the inherited socket, and later an order to drain or to
halt. A signal sent to this process drains it, however often it comes: only the supervisor
halts. When the supervisor is gone, the process drains and exits.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from holdfast.errors import HoldfastError, StoreError
from holdfast.observe import Observer
from holdfast.runtime.event_loop import run
from holdfast.runtime.processes import on_parent_exit
from holdfast.worker.loading import load_app, load_object
from holdfast.worker.metrics import count_submissions, measured
from holdfast.worker.supervisor.protocol import DRAIN, HALT, LARGEST, Reporter, WorkerPlan
from holdfast.worker.worker import Worker

CANNOT_START = 3
"""Exit code of a process that cannot load its app."""


def main() -> None:
    """Run one worker until it is stopped."""
    line = socket.socket(fileno=int(sys.argv[1]))
    plan = msgspec.msgpack.decode(line.recv(LARGEST), type=WorkerPlan)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        worker, reporter, observer = _prepared(plan, line)
    except (HoldfastError, ImportError) as error:
        print(f"holdfast: {error}", file=sys.stderr)  # noqa: T201  # there is no observer yet
        sys.exit(CANNOT_START)
    reporter.ready()
    try:
        run(_work(worker, line, observer, burst=plan.burst))
    except StoreError as error:
        print(f"holdfast: {error}", file=sys.stderr)  # noqa: T201  # the reason for the exit
        sys.exit(1)


def _prepared(plan: WorkerPlan, line: socket.socket) -> tuple[Worker, Reporter, Observer]:
    app = load_app(plan.app)
    observer = cast("Callable[[], Observer]", load_object(plan.observer))()
    count_submissions(app, observer)
    reporter = Reporter(line)
    worker = Worker(
        app,
        queues=plan.queues,
        slots=plan.slots,
        grace=plan.grace,
        maintenance=plan.maintenance,
        observer=observer,
        name=plan.name,
        listener=reporter,
    )
    return worker, reporter, observer


async def _work(worker: Worker, line: socket.socket, observer: Observer, *, burst: bool) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.drain)
    loop.add_reader(line.fileno(), _obey, worker, line)
    on_parent_exit(lambda: loop.call_soon_threadsafe(worker.drain))
    try:
        async with measured(observer, worker):
            await worker.run(burst=burst)
    finally:
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
