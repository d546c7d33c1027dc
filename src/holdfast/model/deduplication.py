"""BullMQ's deduplication: a submission whose id another job of the queue holds adds no job.

Without a ttl the id is held until the job ends, with a ttl for that time. What else a duplicate
may change is one of the flags below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol, cast

import msgspec

from holdfast.errors import Fault
from holdfast.model.times import parse_duration, shown

MAX_ID = 256
"""Characters of a deduplication id: it is part of a key on the server."""
_ID_RULE = re.compile(rf"[^\x00\ud800-\udfff]{{1,{MAX_ID}}}")


class Deduplication(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Under which id a job is unique in its queue, and for how long."""

    id: str
    ttl: timedelta | None = None
    """How long the id is held; None: until the job has ended."""
    extend: bool = False
    """Whether a duplicate starts the ttl again."""
    replace: bool = False
    """Whether the newest submission replaces a job that is delayed."""
    reschedule: bool = False
    """Whether a job that is delayed takes the delay of the newest submission."""
    keep_last_if_active: bool = False
    """Whether the newest duplicate of a running job is submitted when that job has ended."""


FIELD = "deduplication"
FLAGS = ("extend", "replace", "reschedule", "keep_last_if_active")


class Terms(Protocol):
    """What a store can do about duplicates."""

    @property
    def deduplicates(self) -> bool: ...
    @property
    def encrypts(self) -> bool: ...


def read_deduplication(
    value: object, submission: object, *, terms: Terms
) -> tuple[Deduplication | None, list[Fault]]:
    """Read the option as a caller gave it with a submission: its value, or the faults.

    Only some stores support it, and it excludes some other options.
    """
    if isinstance(value, Deduplication):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, Mapping):
        return None, [Fault(FIELD, "INVALID", f"must be an object with an id, got {shown(value)}")]
    given = {str(name): part for name, part in cast("Mapping[object, object]", value).items()}
    given = {name: part for name, part in given.items() if part is not None}
    if faults := _part_faults(given) or _faults_with(given, submission, terms):
        return None, faults
    if "ttl" in given:
        given["ttl"] = parse_duration(given["ttl"])
    return Deduplication(**given), []  # type: ignore[arg-type]  # each part was checked


def _part_faults(given: Mapping[str, object]) -> list[Fault]:
    faults = [fault for name, part in given.items() if (fault := _fault(name, part))]
    if "id" not in given:
        faults.append(Fault(f"{FIELD}.id", "REQUIRED", "is required"))
    if given.get("extend") is True and "ttl" not in given:
        faults.append(Fault(f"{FIELD}.extend", "CONFLICT", "needs a ttl to extend"))
    return faults


def _faults_with(given: Mapping[str, object], submission: object, terms: Terms) -> list[Fault]:
    if not terms.deduplicates:
        message = "is an option of jobs on Redis; here use idempotency_key"
        return [Fault(FIELD, "UNSUPPORTED", message)]
    keeps_last = given.get("keep_last_if_active") is True
    if keeps_last and terms.encrypts:
        message = (
            "cannot be combined with encryption: BullMQ makes the job from an encrypted payload"
        )
        return [Fault(f"{FIELD}.keep_last_if_active", "UNSUPPORTED", message)]
    others = ("depends_on", "hold") if keeps_last else ()
    refused = [name for name in ("idempotency_key", *others) if getattr(submission, name)]
    part = f"{FIELD}.keep_last_if_active" if keeps_last else FIELD
    return [Fault(part, "CONFLICT", f"cannot be combined with {name}") for name in refused]


def _fault(name: str, value: object) -> Fault | None:
    part = f"{FIELD}.{name:.60}"
    if name == "id":
        return _id_fault(part, value)
    if name == "ttl":
        return _ttl_fault(part, value)
    if name not in FLAGS:
        return Fault(part, "UNKNOWN_FIELD", f"is not id, ttl, {', '.join(FLAGS)}")
    if isinstance(value, bool):
        return None
    return Fault(part, "INVALID", f"must be true or false, got {shown(value)}")


def _id_fault(part: str, value: object) -> Fault | None:
    if isinstance(value, str) and _ID_RULE.fullmatch(value):
        return None
    rule = f"must be a text of 1 to {MAX_ID} characters without NUL or unpaired surrogates"
    return Fault(part, "INVALID", f"{rule}, got {shown(value)}")


def _ttl_fault(part: str, value: object) -> Fault | None:
    try:
        span = parse_duration(value)
    except ValueError as error:
        return Fault(part, "INVALID_DURATION", str(error))
    if span >= timedelta(milliseconds=1):
        return None
    return Fault(part, "OUT_OF_RANGE", f"must be at least 1 ms, got {shown(value)}")
