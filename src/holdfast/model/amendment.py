"""What callers may change of a submitted job: its user metadata.

Tags and correlation id at any time, the callback address until the job has ended, the priority
while it waits, and when it is due while it waits for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault
from holdfast.model.job import TERMINAL, Job, Priority, State
from holdfast.model.reserved import RESERVED
from holdfast.model.results import UpdateStatus
from holdfast.model.submission import Defaults, Submission
from holdfast.model.times import (
    Moment,
    Span,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from holdfast.model.validation import SubmissionReader

WAITING = frozenset({State.PENDING, State.SCHEDULED, State.DELAYED, State.RETRYING})
POSTPONABLE = WAITING - {State.SCHEDULED}
"""States before a job is ready: only then its due time still matters."""


class JobMetadata(TypedDict, total=False):
    """What ``update`` changes: whatever is given, and not None."""

    tags: Mapping[str, str] | None
    """They replace all tags that the job has."""
    correlation_id: str | None
    """An empty text removes it."""
    callback_url: str | None
    """An empty text removes it."""
    priority: Priority | str | int | None
    delay: Span | None
    """Due this long from now: 0 is at once, without the rest of a delay or backoff."""
    scheduled_at: Moment | None
    """Due at this time; not together with delay."""


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """New values of a job's metadata; None for what stays."""

    tags: Mapping[str, str] | None = None
    correlation_id: str | None = None
    callback_url: str | None = None
    priority: int | None = None
    due_at: datetime | None = None

    def refused(self, job: Job) -> UpdateStatus | None:
        """Return why a job in its present state cannot be changed like this, or None."""
        if self.priority not in (None, job.priority) and job.state not in WAITING:
            return UpdateStatus.NOT_WAITING
        if self.due_at is not None and job.state not in POSTPONABLE:
            return UpdateStatus.NOT_WAITING
        if self.callback_url not in (None, job.callback_url) and job.state in TERMINAL:
            return UpdateStatus.ENDED
        return None

    def faults(self, job: Job) -> list[Fault]:
        """Return the rules that the new values break for this job."""
        if self.due_at is None or self.due_at <= job.expires_at:
            return []
        end, due = format_timestamp(job.expires_at), format_timestamp(self.due_at)
        message = f"must fall within the job's lifetime, which ends at {end}, got {due}"
        return [Fault("scheduled_at", "BEYOND_LIFETIME", message)]

    def applied(self, job: Job) -> Job:
        """Return the changed job, itself if nothing changes; tags of holdfast's own stay."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        if self.tags is not None:
            own = {name: tag for name, tag in job.tags.items() if name.startswith(RESERVED)}
            given["tags"] = {**self.tags, **own}
        new = {
            name: value
            for name, value in given.items()
            if value is not None and value != getattr(job, name)
        }
        return replace(job, revision=job.revision + 1, **new) if new else job


def metadata_submission(metadata: Mapping[str, object]) -> Submission:
    """Return a submission with this metadata, for ``read_amendment``."""
    known = {name: value for name, value in metadata.items() if name in _FIELDS}
    faults = [
        Fault(name, "UNKNOWN_FIELD", f"cannot be changed: only {', '.join(_FIELDS)} can")
        for name in metadata
        if name not in _FIELDS
    ]
    return Submission(type="update", **known, faults=tuple(faults))  # type: ignore[arg-type]  # read_amendment checks


def read_amendment(submission: Submission, now: datetime) -> Amendment:
    """Check new metadata by the rules of a submission; ValidationError lists every fault."""
    removed = [name for name in _REMOVABLE if getattr(submission, name) == ""]
    due_at, faults = _due(submission, now)
    given = replace(
        submission,
        **dict.fromkeys((*removed, *_TIMES)),
        faults=(*submission.faults, *faults),
    )
    job = SubmissionReader(given, Defaults(), now, {}).job("", None)
    changed = [name for name in _PLAIN if getattr(given, name) is not None]
    return Amendment(
        **{name: getattr(job, name) for name in (*changed, *removed)},
        due_at=due_at,
    )


def _due(submission: Submission, now: datetime) -> tuple[datetime | None, list[Fault]]:
    """Return when the job is to be due; the lifetime is that of the job, so it is checked later."""
    delay, at = submission.delay, submission.scheduled_at
    if delay is not None and at is not None:
        message = "must not be given together with delay"
        return None, [Fault("scheduled_at", "CONFLICT", message)]
    try:
        if delay is not None:
            return now + parse_duration(delay), []
        return None if at is None else parse_timestamp(at), []
    except ValueError as error:
        field, code = ("delay", "INVALID_DURATION") if at is None else _BAD_MOMENT
        return None, [Fault(field, code, str(error))]


_BAD_MOMENT = ("scheduled_at", "INVALID_TIMESTAMP")
_REMOVABLE = ("correlation_id", "callback_url")
_PLAIN = ("tags", *_REMOVABLE, "priority")
_TIMES = ("delay", "scheduled_at")
_FIELDS = (*_PLAIN, *_TIMES)
