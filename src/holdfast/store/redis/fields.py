"""The fields of a job's hash, typed; and what every job on the wire has, whoever made it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.job import CancelRequest, Failure, Lease, Priority, Progress, State

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Rest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changes rarely and no script needs to look into."""

    max_attempts: int
    generation: int = 1
    cancel: CancelRequest | None = None
    failure: Failure | None = None


_rest = msgspec.json.Decoder(Rest)
_progress = msgspec.json.Decoder(Progress)
_encode = msgspec.json.Encoder().encode


def micros(moment: datetime) -> int:
    """Return an instant as microseconds since the epoch."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def instant(value: int) -> datetime:
    """Return the instant so many microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=value)


def maybe(moment: datetime | None) -> str:
    """Write an instant that may be missing."""
    return "" if moment is None else str(micros(moment))


def level(priority: int) -> int:
    """Return the level a BullMQ priority number means; numbers above 4 are BULK."""
    return max(0, min(int(Priority.BULK), priority))


class Reader:
    """Typed access to the fields of a hash, absent ones included."""

    def __init__(self, values: Mapping[str, bytes | None]) -> None:
        self._values = values

    def raw(self, name: str) -> bytes | None:
        """Return a field as it is."""
        return self._values[name]

    def text(self, name: str) -> str:
        """Return a field as text, empty when absent."""
        return (self._values[name] or b"").decode("utf-8", "replace")

    def number(self, name: str) -> int:
        """Return a field as a number, 0 when absent or not one."""
        try:
            return int(self._values[name] or 0)
        except ValueError:
            return 0

    def time(self, name: str) -> datetime | None:
        """Return a field of microseconds as an instant."""
        value = self._values[name]
        return instant(int(value)) if value else None

    def json(self, name: str) -> object:
        """Return a field of JSON, None when it is not."""
        return parsed(self._values[name] or b"")


def parsed(data: bytes) -> object:
    """Return JSON from outside as a value, None when it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_rest(data: bytes) -> Rest:
    """Read the blob of what changes rarely."""
    return _rest.decode(data)


def read_cancel(data: bytes | None) -> CancelRequest | None:
    """Read just the wish to cancel."""
    return _rest.decode(data).cancel if data else None


def mutable(fields: Reader, state: State) -> dict[str, object]:
    """Return the fields that every job on the wire has and scripts keep up to date."""
    lease = None
    if version := fields.number("ats"):
        lease = Lease(fields.text("hf:tok"), version, fields.text("hf:wrk"), fields.time("hf:unt"))
    return {
        "state": state,
        "revision": fields.number("hf:rev"),
        "priority": level(fields.number("priority")),
        "attempt": fields.number("atm") + (state is State.RUNNING),
        "updated_at": instant(fields.number("hf:upd")),
        "due_at": fields.time("hf:due"),
        "scheduled_at": fields.time("hf:sch"),
        "started_at": fields.time("hf:run"),
        "finished_at": fields.time("hf:fin"),
        "expires_at": instant(fields.number("hf:exp")),
        "lease": lease,
        "progress": _latest_progress(fields),
        "checkpoint": fields.raw("hf:cp"),
    }


def progress_values(progress: Progress) -> tuple[str, str]:
    """Return progress as we keep it and as Node reads it: a number, or one with a message."""
    seen = {"percent": progress.percent, "message": progress.message}
    wire = _encode(seen if progress.message else progress.percent)
    return _encode(progress).decode(), wire.decode()


def read_progress(data: bytes) -> Progress:
    """Read progress that we wrote."""
    return _progress.decode(data)


def _latest_progress(fields: Reader) -> Progress | None:
    """Ours, unless a BullMQ client has reported since."""
    kept, wire = fields.raw("hf:pg"), fields.raw("progress")
    if wire is None:
        return None
    if kept is not None:
        progress = read_progress(kept)
        if progress_values(progress)[1].encode() == wire:
            return progress
    return foreign_progress(wire, instant(fields.number("hf:upd")))


def foreign_progress(wire: bytes, at: datetime) -> Progress:
    """Read BullMQ's progress: a number, or anything else as a message."""
    value = parsed(wire)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Progress(max(0, min(100, int(value))), "", at)
    if isinstance(value, dict) and isinstance(value.get("percent"), int):
        return Progress(max(0, min(100, value["percent"])), str(value.get("message", "")), at)
    return Progress(0, wire.decode("utf-8", "replace")[:1000], at)
