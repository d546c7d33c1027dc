"""Which settings a queue has, and what values they accept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from holdfast.errors import Fault, ValidationError

NOTHING = timedelta(0)


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise ``ValidationError`` with every fault in a queue's new settings."""
    faults = [
        Fault(name, "UNKNOWN", f"must be a setting of a queue: {', '.join(_RULES)}")
        if name not in _RULES
        else Fault(name, "INVALID", f"must be {_RULES[name]}, got {value!r:.60}")
        for name, value in settings.items()
        if not _is_valid(name, value)
    ]
    if faults:
        raise ValidationError(faults)


_RULES = {"paused": "true or false", "ageing": "a timedelta above zero, or None"}


def _is_valid(name: str, value: object) -> bool:
    match name:
        case "paused":
            return isinstance(value, bool)
        case "ageing":
            return value is None or (isinstance(value, timedelta) and value > NOTHING)
        case _:
            return False
