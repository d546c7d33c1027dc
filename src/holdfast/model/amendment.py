"""What callers may change of a submitted job: its user metadata.

Tags and correlation id at any time, the callback address until the job has ended, the priority
while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault
from holdfast.model.job import TERMINAL, Job, Priority, State
from holdfast.model.reserved import RESERVED
from holdfast.model.results import UpdateStatus
from holdfast.model.submission import Defaults, Submission
from holdfast.model.validation import SubmissionReader

WAITING = frozenset({State.PENDING, State.SCHEDULED, State.DELAYED, State.RETRYING})
_EPOCH = datetime.fromtimestamp(0, UTC)


class JobMetadata(TypedDict, total=False):
    """What ``update`` changes: whatever is given, and not None."""

    tags: Mapping[str, str] | None
    """They replace all tags that the job has."""
    correlation_id: str | None
    """An empty text removes it."""
    callback_url: str | None
    """An empty text removes it."""
    priority: Priority | str | int | None


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """New values of a job's metadata; None for what stays."""

    tags: Mapping[str, str] | None = None
    correlation_id: str | None = None
    callback_url: str | None = None
    priority: int | None = None

    def refused(self, job: Job) -> UpdateStatus | None:
        """Return why a job in its present state cannot be changed like this, or None."""
        if self.priority not in (None, job.priority) and job.state not in WAITING:
            return UpdateStatus.NOT_WAITING
        if self.callback_url not in (None, job.callback_url) and job.state in TERMINAL:
            return UpdateStatus.ENDED
        return None

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


def read_amendment(submission: Submission) -> Amendment:
    """Check new metadata by the rules of a submission; ValidationError lists every fault."""
    removed = [name for name in _REMOVABLE if getattr(submission, name) == ""]
    given = replace(submission, **dict.fromkeys(removed))
    job = SubmissionReader(given, Defaults(), _EPOCH, {}).job("", None)
    changed = [name for name in _FIELDS if getattr(given, name) is not None]
    return Amendment(**{name: getattr(job, name) for name in (*changed, *removed)})


_FIELDS = Amendment.__struct_fields__
_REMOVABLE = ("correlation_id", "callback_url")
