"""The verb amend: what callers may change of a stored job.

``hf:job`` holds more than that, some of it encrypted. So it is read, and written with the new
values if the revision is still the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import Fault, ValidationError
from holdfast.store.redis import encode
from holdfast.store.redis.add import Params, indexes_of, trace_of
from holdfast.store.redis.decode import JobReply, read_fixed
from holdfast.store.redis.encode import pack
from holdfast.store.redis.fields import micros
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import Change, Swapped

OWN_FIELDS = ("tags", "correlation_id", "callback_url")
"""What a job of a BullMQ client does not have."""


async def amend(session: RedisSession, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose job is unchanged; see ``Store.amend``."""
    if not changes:
        return []
    stored = await session.call("get", pack([change.before.id for change in changes]))
    params = [_params(change, reply) for change, reply in zip(changes, stored, strict=True)]
    answers = await session.call("amend", pack(params))
    return [Swapped(written=True) if a == 1 else _refused(session, *a) for a in answers]


def _refused(session: RedisSession, reply: JobReply | None) -> Swapped:
    return Swapped(written=False, job=session.read(reply) if reply else None)


def _params(change: Change, reply: JobReply | None) -> Params:
    """Return a change as ``amend.lua`` receives it."""
    before, after = change.before, change.after
    params: Params = {
        "id": before.id,
        "queue": before.queue,
        "rev": before.revision,
        "revision": after.revision,
        "level": int(after.priority),
        "drop": [],
        "index": [],
    }
    if after.due_at is not None and after.due_at != before.due_at:
        params["due"] = micros(after.due_at)
    if reply is None:
        return params
    fixed = read_fixed(reply)
    if fixed is not None:
        index = indexes_of(after)
        params["fixed"] = encode.amended_fixed(fixed, after)
        params["trace"] = trace_of(after)
        params["drop"] = [name for name in indexes_of(before) if name not in index]
        params["index"] = index
    elif faults := [_absent(name) for name in OWN_FIELDS if _differs(change, name)]:
        raise ValidationError(faults)
    return params


def _differs(change: Change, name: str) -> bool:
    return bool(getattr(change.before, name) != getattr(change.after, name))


def _absent(name: str) -> Fault:
    return Fault(name, "UNSUPPORTED", "cannot be given to a job that a BullMQ client submitted")
