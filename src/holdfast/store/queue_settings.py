"""Which settings a queue has, and what values they accept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from holdfast.errors import Fault, ValidationError

NOTHING = timedelta(0)


def check_settings(settings: Mapping[str, object], *, closes_queues: bool = False) -> None:
    """Raise ``ValidationError`` with every fault in a queue's new settings.

    ``closes_queues``: the store takes ``closed_for``; see ``Capabilities``.
    """
    rules = _RULES | _CLOSING if closes_queues else _RULES
    faults = [
        Fault(name, "UNKNOWN", f"must be a setting of a queue: {', '.join(rules)}")
        if name not in rules
        else Fault(name, "INVALID", f"must be {rules[name]}, got {value!r:.60}")
        for name, value in settings.items()
        if name not in rules or not _is_valid(name, value)
    ]
    if faults:
        raise ValidationError(faults)


_RULES = {"paused": "true or false", "ageing": "a timedelta above zero, or None"}
_CLOSING = {"closed_for": "a timedelta above zero"}


def _is_valid(name: str, value: object) -> bool:
    match name:
        case "paused":
            return isinstance(value, bool)
        case "ageing":
            return value is None or (isinstance(value, timedelta) and value > NOTHING)
        case "closed_for":
            return isinstance(value, timedelta) and value > NOTHING
        case _:
            return False
