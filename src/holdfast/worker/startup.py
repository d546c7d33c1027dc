"""Starting a worker while its store may be unavailable, and waiting until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.encryption import require_keys
from holdfast.errors import (
    Fault,
    SchemaVersionError,
    StoreError,
    StoreUnavailableError,
    ValidationError,
)
from holdfast.model.job import State
from holdfast.model.reserved import is_internal, refusal
from holdfast.observe import Observer, Outage, unobserved_reported
from holdfast.operations.limits import declare_limits
from holdfast.runtime.backoff import GrowingDelay
from holdfast.store import Search, Store
from holdfast.tasks.registry import Registry
from holdfast.worker.announcer import Announcer

MOST_QUEUES = 50
MOST_TYPES = 100
"""How many queues and types the look for unserved jobs covers: it is one query per queue."""


@contextlib.asynccontextmanager
async def opened(
    app: Holdfast, stopping: asyncio.Event, outage: Outage
) -> AsyncGenerator[Store, None]:
    """Start an app with its resources, close both at the end; wait for its store before.

    The wait ends with the store's error when ``stopping`` is set.
    Of several store errors that the body raises as a group, the first is raised instead.
    """
    await _start(app, stopping, outage)
    try:
        with unobserved_reported(outage.observer):
            async with app.registry.seams.resources.opened(app):
                yield app.store
    except ExceptionGroup as errors:
        raise _store_error(errors) or errors from None
    finally:
        await app.close()


async def _start(app: Holdfast, stopping: asyncio.Event, outage: Outage) -> None:
    delay = GrowingDelay(app.randomness)
    while True:
        try:
            await _start_once(app)
        except StoreUnavailableError as error:
            outage.failed(error)
            if stopping.is_set():
                raise
            await outage.pause(delay.next(), unless=stopping)
        else:
            outage.over()
            return


async def _start_once(app: Holdfast) -> None:
    """Start an app; StoreError, before any job is claimed, when it lacks the store's keys."""
    await app.start()
    try:
        await require_keys(app.store)
    except BaseException:
        await app.close()
        raise


async def pause_unless(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so many seconds, or until ``stopping`` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


async def wait_unless(
    over: asyncio.Event, tasks: Sequence[asyncio.Task[None]], *, extra: float = 0.0
) -> None:
    """Wait for tasks until ``over`` is set, or ``extra`` seconds longer."""
    if not tasks:
        return
    is_over = asyncio.ensure_future(over.wait())
    all_ended = asyncio.ensure_future(asyncio.wait(tasks))
    await asyncio.wait({is_over, all_ended}, return_when=asyncio.FIRST_COMPLETED)
    if extra and not all_ended.done():
        await asyncio.wait({all_ended}, timeout=extra)
    is_over.cancel()
    all_ended.cancel()


async def report_other_queues(
    store: Store, queues: Sequence[str], types: Sequence[str], observer: Observer
) -> None:
    """Report queues that this worker does not serve and that have ready jobs of its types."""
    with contextlib.suppress(Exception):  # only a hint
        others = [q.name for q in await store.queues() if q.name not in queues][:MOST_QUEUES]
        for queue in others if types else ():
            wanted = tuple(types[:MOST_TYPES])
            search = Search(states=(State.SCHEDULED,), queues=(queue,), types=wanted, limit=1)
            if (await store.find(search)).jobs:
                observer.emit("worker.other_queue", queue=queue, advice=f"serve it with -Q {queue}")


def checked_queues(queues: Iterable[str], *, internal: bool) -> tuple[str, ...]:
    """Return the queues of a worker; ValidationError for one that holdfast serves itself."""
    names = tuple(queues)
    own = [name for name in names if is_internal(name.rpartition("/")[2])]
    if own and not internal:
        raise ValidationError([Fault("queues", "RESERVED", refusal(name)) for name in own])
    return names


def ends_worker(error: Exception, *, burst: bool) -> bool:
    """Whether a worker stops because of an error: only a newer program can continue.

    A burst also stops where the store refuses, because its caller waits for the end.
    """
    if isinstance(error, SchemaVersionError):
        return True
    return burst and not isinstance(error, StoreUnavailableError)


async def declare(store: Store, registry: Registry, announcer: Announcer) -> bool:
    """Write what tasks declare, for all workers and submitters; return True when that is done."""
    await _declare_limits(store, registry)
    await announcer.publish()
    return True


async def _declare_limits(store: Store, registry: Registry) -> None:
    rules = {f"task:{handler.type}": handler.options.limit for handler in registry}
    rules |= {f"key:{handler.type}": handler.options.key_limit for handler in registry}
    await declare_limits(store, {scope: rule for scope, rule in rules.items() if rule})


def _store_error(errors: ExceptionGroup[Exception]) -> Exception | None:
    """The first of several errors, if all of them are store errors."""
    of_store, others = errors.split(StoreError)
    if of_store is None or others is not None:
        return None
    first: Exception = of_store
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first


def report_stopping(observer: Observer, running: int, grace: timedelta) -> None:
    """Report what a stop waits for, and how to hurry it."""
    if running:
        observer.emit(
            "worker.stopping",
            running=running,
            grace=grace.total_seconds(),
            advice="a second Ctrl-C or TERM returns them to the queue at once",
        )
    else:
        observer.emit("worker.stopping", running=0)
