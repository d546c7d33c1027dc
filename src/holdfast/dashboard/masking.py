"""A payload in a form: secrets are masked, and come back when the form is sent.

A copy of a job needs its payload whole; the form shows it as every other page does. Numbers stay
the text they are stored as.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.observe.redaction import Redaction


class NumberText(str):
    """A number as it is written."""

    __slots__ = ()


def read_json(data: bytes | str) -> Any:
    """Decode JSON with its numbers as text; ValueError or RecursionError when it cannot."""
    return json.loads(data, parse_int=NumberText, parse_float=NumberText, parse_constant=NumberText)


def masked(value: Any, redaction: Redaction, name: str = "") -> Any:
    """Return a decoded value with its secrets masked, by their names and spellings."""
    if isinstance(value, dict):
        return {key: masked(each, redaction, key) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each, redaction, str(at)) for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    shown = str(redaction.fields({name: str(value)})[name])
    return value if shown == value else shown


def unmasked(given: Any, original: Any, shown: Any) -> Any:
    """Return what a form gives, with the original values where it repeats what was masked."""
    if isinstance(given, dict) and isinstance(original, dict):
        return {
            key: unmasked(each, original[key], shown[key]) if key in original else each
            for key, each in given.items()
        }
    if isinstance(given, list) and isinstance(original, list) and len(given) == len(original):
        return [unmasked(*each) for each in zip(given, original, shown, strict=True)]
    return original if shown != original and given == shown else given


def written(value: Any, indent: str = "") -> str:
    """Return a decoded value as indented JSON, with every number as it was written."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        parts = [f"{inner}{_text(key)}: {written(each, inner)}" for key, each in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + written(each, inner) for each in value) + f"\n{indent}]"
    return str(value) if isinstance(value, NumberText) else _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
