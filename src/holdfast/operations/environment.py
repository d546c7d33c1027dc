"""Settings of an app that its code does not give, from HOLDFAST_* variables.

The command line reads the same settings from holdfast.toml and flags, by the same rules, and
passes them to the apps that it runs as variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import cast

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.policy import MAX_ATTEMPTS, Limits, Retention
from holdfast.model.profiles import PROFILES, Profile, profile_named
from holdfast.model.submission import BULLMQ_QUEUE_RULE
from holdfast.model.times import format_duration, parse_span
from holdfast.webhooks import WebhookSettings

PREFIX = "HOLDFAST_"
FOREVER = "forever"


class AppSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an app takes where its code gives nothing."""

    profiles: Mapping[str, Profile]
    limits: Limits
    retention: Retention
    webhooks: WebhookSettings


def from_environment() -> AppSettings:
    """Return the settings in the environment; ValidationError names every wrong variable."""
    values: dict[str, object] = {}
    faults: list[Fault] = []
    for key, (_, read, _) in APP_SETTINGS.items():
        text = os.environ.get(variable(key))
        if text:
            try:
                values[key] = read(text)
            except ValueError as error:
                faults.append(Fault(f"${variable(key)}", "INVALID", str(error)))
    if faults:
        raise ValidationError(faults)
    return app_settings(values)


def app_settings(values: Mapping[str, object]) -> AppSettings:
    """Return the settings with these values, as they were read; others keep their defaults."""
    parts: dict[str, dict[str, object]] = {"limits": {}, "retention": {}, "webhooks": {}}
    for key, value in values.items():
        part, _, name = key.partition(".")
        if name and value is not None:
            parts[part][name] = None if value == FOREVER else value
    if "allow" in parts["webhooks"]:
        names = str(parts["webhooks"]["allow"]).split(",")
        parts["webhooks"]["allow"] = tuple(name.strip() for name in names if name.strip())
    profiles = cast("Mapping[str, str]", values.get("profiles") or {})
    return AppSettings(
        profiles={queue: profile_named(name) for queue, name in profiles.items()},
        limits=msgspec.convert(parts["limits"], Limits),
        retention=msgspec.convert(parts["retention"], Retention),
        webhooks=msgspec.convert(parts["webhooks"], WebhookSettings),
    )


def variable(key: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + key.upper().replace(".", "_")


def as_text(value: object) -> str:
    """Return the value of a setting as a variable holds it."""
    match value:
        case timedelta():
            return format_duration(value)
        case dict():
            return ",".join(f"{name}={_short(each)}" for name, each in value.items())
        case _:
            return str(value)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_text(value: object) -> str:
    """Read a text."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be text, got {value!r:.60}")
    return value


def read_names(value: object) -> str:
    """Read names, separated by commas or in a list."""
    return ",".join(map(read_text, value)) if isinstance(value, list | tuple) else read_text(value)


def read_number(value: object, most: int | None = None) -> int:
    """Read a whole number from 1."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"must be a whole number from 1, got {value!r:.60}")
    if most is not None and number > most:
        raise ValueError(f"must be at most {most}, got {number}")
    return number


def read_positive_span(value: object) -> timedelta:
    """Read a duration above zero."""
    span = parse_span(value)
    if not span:
        raise ValueError("must be longer than 0 s")
    return span


def _kept(value: object) -> timedelta | str:
    if value == FOREVER:
        return FOREVER
    try:
        return parse_span(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {FOREVER!r}") from None


def _payload_bytes(value: object) -> int:
    return read_number(value, Limits.MAX_PAYLOAD_BYTES)


def _attempts(value: object) -> int:
    return read_number(value, MAX_ATTEMPTS)


def read_profiles(value: object) -> dict[str, str]:
    """Read the profiles of queues: a table, or texts such as ``mail=lease,other=document``."""
    if isinstance(value, dict):
        pairs = [(str(queue), name) for queue, name in value.items()]
    else:
        texts = read_names(value).split(",")
        pairs = [(text.partition("=")[0].strip(), text.partition("=")[2].strip()) for text in texts]
    for queue, name in pairs:
        if not all(map(BULLMQ_QUEUE_RULE.fullmatch, queue.split("/"))) or queue.count("/") > 1:
            raise ValueError(f"must name queues without a colon, got {queue!r:.60}")
        if name not in PROFILES:
            known = ", ".join(PROFILES)
            raise ValueError(f"must give queue {queue!r} one of {known}, got {name!r:.60}")
    return dict(pairs)


Read = Callable[[object], object]
_LIMITS, _KEPT, _SENT = Limits(), Retention(), WebhookSettings()

APP_SETTINGS: Mapping[str, tuple[object, Read, str]] = {
    "profiles": (None, read_profiles, "the profiles of queues, queue=profile"),
    "limits.payload_bytes": (_LIMITS.payload_bytes, _payload_bytes, "the largest payload, bytes"),
    "limits.timeout": (_LIMITS.timeout, read_positive_span, "the longest time for one attempt"),
    "limits.queue_depth": (None, read_number, "how many jobs may wait in one queue"),
    "limits.submission_rate": (None, read_number, "jobs that one process may submit per second"),
    "retention.completed": (_KEPT.completed, _kept, "how long completed jobs are kept"),
    "retention.failed": (_KEPT.failed, _kept, "how long failed jobs are kept"),
    "retention.dead_letter": (_KEPT.dead_letter, _kept, "how long dead letters are kept"),
    "retention.cancelled": (_KEPT.cancelled, _kept, "how long cancelled jobs are kept"),
    "webhooks.allow": (None, read_names, "allow webhooks to http, other ports or networks"),
    "webhooks.timeout": (_SENT.timeout, read_positive_span, "how long one delivery may take"),
    "webhooks.max_attempts": (_SENT.max_attempts, _attempts, "attempts to deliver a webhook"),
    "webhooks.lifetime": (_SENT.lifetime, read_positive_span, "how long a delivery is tried"),
}
"""The default, the reader and the meaning of each setting."""
