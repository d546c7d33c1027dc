"""Pauses of queues with a reason and an end; the leader resumes a queue when its pause ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, StoreUnavailableError, ValidationError
from holdfast.model.payload import clean
from holdfast.model.queues import QueuePause
from holdfast.model.reserved import QUEUE_PAUSES
from holdfast.model.times import Moment, format_timestamp, parse_timestamp
from holdfast.operations.quarantine import set_aside
from holdfast.store import QueueInfo, Record, RecordWrite, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import readable

LONGEST_REASON = 500


async def pause(
    store: Store, queue: str, *, reason: str = "", until: Moment | None = None, by: str = ""
) -> QueuePause:
    """Pause a queue; ValidationError when ``until`` has passed."""
    now = store.now()
    end = None if until is None else _moment(until)
    if end is not None and end <= now:
        message = f"must be after now, got {format_timestamp(end)}"
        raise ValidationError([Fault("until", "OUT_OF_RANGE", message)])
    made = QueuePause(
        at=now, reason=clean(str(reason), LONGEST_REASON), until=end, by=clean(str(by), 100)
    )
    # The record first: a process that dies in between leaves no pause without its end.
    data = msgspec.json.encode(made)
    await store.keep([RecordWrite(kind=QUEUE_PAUSES, key=queue, data=data)])
    await store.configure(queue, {"paused": True})
    return made


async def resume(store: Store, queue: str) -> None:
    """Resume a queue."""
    await store.configure(queue, {"paused": False})
    await store.keep([RecordWrite(kind=QUEUE_PAUSES, key=queue, data=None)])


async def with_pauses(store: Store, queues: Iterable[QueueInfo]) -> list[QueueInfo]:
    """Return queues, the paused ones with the reason."""
    found = list(queues)
    if not any(queue.paused for queue in found):
        return found
    names = [queue.name for queue in found if queue.paused]
    records = await store.records(QUEUE_PAUSES, names)
    pauses = dict(readable([each for each in records if each], _decoded))
    return [
        replace(queue, pause=pauses.get(queue.name)) if queue.paused else queue for queue in found
    ]


async def end_pauses(store: Store) -> list[str]:
    """Resume the queues whose pauses have ended; return their names."""
    ended: list[str] = []
    now = store.now()
    for record in await every_record(store, QUEUE_PAUSES):
        for queue, each in readable([record], _decoded):
            if each.until is not None and each.until <= now and await _ended(store, record):
                ended.append(queue)
    return ended


async def _ended(store: Store, record: Record) -> bool:
    """End a pause; one that cannot be ended is set aside, and the others end."""
    try:
        await _end(store, record)
    except StoreUnavailableError:
        raise
    except Exception as error:  # noqa: BLE001  # such as a queue with a damaged key
        await set_aside(store, f"pause of queue {record.key}", error)
        return False
    return True


async def _end(store: Store, record: Record) -> None:
    """Resume a queue, unless it was paused again meanwhile.

    The record goes last: a leader that dies between the two calls leaves it to the next one.
    """
    await store.configure(record.key, {"paused": False})
    gone = RecordWrite(kind=QUEUE_PAUSES, key=record.key, data=None, version=record.version)
    if (await store.keep([gone]))[0] is None and (
        await store.records(QUEUE_PAUSES, [record.key])
    ) != [None]:
        await store.configure(record.key, {"paused": True})


def _decoded(record: Record) -> tuple[str, QueuePause]:
    return record.key, msgspec.json.decode(record.data, type=QueuePause)


def _moment(until: Moment) -> datetime:
    try:
        return parse_timestamp(until)
    except ValueError as error:
        raise ValidationError([Fault("until", "INVALID", str(error))]) from None
