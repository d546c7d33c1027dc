"""Checks what callers give of a schedule: names, expressions, payloads and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.acceptance import FIELDS
from holdfast.model.payload import PayloadError, encode
from holdfast.model.reserved import RESERVED, refusal
from holdfast.model.times import shown
from holdfast.tasks.plans import Plan
from holdfast.tasks.schedule import MissedRuns, cron_entry

NAME_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
MOST_PAYLOAD = 65_536
"""Bytes of the payload of a schedule."""
OPTIONS = frozenset(
    {
        "queue",
        "priority",
        "timeout",
        "lifetime",
        "max_attempts",
        "backoff",
        "correlation_id",
        "tags",
        "headers",
        "callback_url",
        "limit_key",
    }
)
"""The options of a submission that a schedule may have."""


def checked_name(name: object) -> str:
    """Return a name that follows the rule."""
    if not isinstance(name, str) or not NAME_RULE.fullmatch(name):
        message = f"must match {NAME_RULE.pattern}, got {shown(name)}"
        raise ValidationError([Fault("name", "INVALID", message)])
    return name


def new_plan(expression: object, tz: object, since: datetime, *, paused: bool) -> Plan:
    """Return a plan whose expression and time zone exist."""
    expression, tz = checked_text("expression", expression), checked_text("tz", tz)
    entry = cron_entry("", "", expression, tz, MissedRuns.ONE, None, {})
    return Plan(since=since, paused=paused, expression=entry.expression, tz=entry.tz)


def checked_text(field: str, value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValidationError([Fault(field, "INVALID", f"must be a text, got {shown(value)}")])
    return value


def missed_runs(missed: object) -> MissedRuns:
    """Return what happens to missed ticks."""
    try:
        return MissedRuns(str(missed))
    except ValueError:
        choices = ", ".join(MissedRuns)
        message = f"must be one of {choices}, got {shown(missed)}"
        raise ValidationError([Fault("missed", "INVALID", message)]) from None


def checked_payload(payload: object) -> msgspec.Raw:
    """Return a payload as JSON text, bounded."""
    if isinstance(payload, bytes | bytearray | memoryview):
        message = "must have a JSON form, got bytes"
        raise ValidationError([Fault("payload", "NOT_JSON", message)])
    try:
        data, _ = encode(payload, MOST_PAYLOAD)
    except PayloadError as error:
        raise ValidationError([error.fault("payload")]) from None
    return msgspec.Raw(data)


def checked_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return options in their JSON form; what they mean is checked as for a submission."""
    faults = [
        Fault(
            f"options.{name!s:.60}",
            "UNKNOWN_FIELD",
            "is not an option of a schedule" if name in FIELDS else "is not an option",
        )
        for name in options
        if name not in OPTIONS
    ]
    tags = options.get("tags")
    if tags is not None and not isinstance(tags, Mapping):
        faults.append(Fault("tags", "INVALID", f"must be an object, got {shown(tags)}"))
    if isinstance(tags, Mapping):
        faults += [
            Fault(f"tags.{tag:.60}", "RESERVED", refusal(tag))
            for tag in tags
            if isinstance(tag, str) and tag.startswith(RESERVED)
        ]
    if faults:
        raise ValidationError(faults)
    try:
        encoded = msgspec.json.encode({k: v for k, v in options.items() if v is not None})
    except (TypeError, ValueError) as error:
        message = f"must have a JSON form: {error}"
        raise ValidationError([Fault("options", "NOT_JSON", message)]) from None
    return msgspec.json.decode(encoded, type=dict[str, object])


def bounded(field: str, value: int, least: int, most: int) -> int:
    """Return a number within bounds."""
    if not least <= value <= most:
        message = f"must be from {least} to {most}, got {shown(value)}"
        raise ValidationError([Fault(field, "OUT_OF_RANGE", message)])
    return value
