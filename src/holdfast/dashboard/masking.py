"""A payload in a form: secrets are masked. ``restoring`` brings them back when the form is sent.

A copy of a job needs its payload whole; the form shows it as every other page does. Numbers stay
the text they are stored as.
"""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.errors import Fault
from holdfast.model.payload import MAX_DEPTH
from holdfast.observe.redaction import Redaction

LONGEST = 131_072
"""Characters of one text in a form: one step of masking takes 30 ms at most."""


class NumberText(str):
    """A number as it is written."""

    __slots__ = ()


def read_json(data: bytes | str) -> Any:
    """Decode JSON with its numbers as text; ValueError or RecursionError when it cannot."""
    return json.loads(data, parse_int=_number, parse_float=_number, parse_constant=_number)


def read_form_json(data: bytes | str) -> Any:
    """Decode JSON for a form; ValueError when it cannot be, or is nested too deeply for one."""
    try:
        value = read_json(data)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if any(isinstance(each, str) and len(each) > LONGEST for each in level):
            raise ValueError(f"has a text of more than {LONGEST:,} characters")
        level = [each for one in level for each in _children(one)]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def not_json(text: str, why: str) -> Fault:
    """Return what is wrong with a payload that is not JSON, and where."""
    try:
        json.loads(text)
    except ValueError as error:  # a number of too many digits, too
        why = str(error)
    except RecursionError:
        pass
    return Fault("payload", "INVALID", f"is not JSON: {why}")


def masked(value: Any, redaction: Redaction, name: str = "") -> Any:
    """Return a decoded value with its secrets masked, by their names and spellings.

    A value without secrets is returned itself.
    """
    if isinstance(value, dict):
        fields = {key: masked(each, redaction, key) for key, each in value.items()}
        return value if all(fields[key] is value[key] for key in value) else fields
    if isinstance(value, list):
        items = [masked(each, redaction, str(at)) for at, each in enumerate(value)]
        return value if all(map(_is, items, value)) else items
    if not isinstance(value, str):
        return value
    shown = str(redaction.fields({name: str(value)})[name])
    return value if shown == value else shown


def written(value: Any, indent: str = "") -> str:
    """Return a decoded value as indented JSON, with every number as it was written."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        parts = [f"{inner}{_text(key)}: {written(each, inner)}" for key, each in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join([inner + written(each, inner) for each in value]) + f"\n{indent}]"
    return str(value) if isinstance(value, NumberText) else _text(value)


def compact(value: Any) -> str:
    """Return a decoded value as JSON in one line."""
    if isinstance(value, dict):
        return "{" + ",".join([f"{_text(key)}:{compact(value[key])}" for key in value]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([compact(each) for each in value]) + "]"
    return str(value) if isinstance(value, NumberText) else _text(value)


_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_SURROGATES = re.compile("[\ud800-\udfff]")


def _number(text: str) -> NumberText:
    """Return a number. A class alone would give other threads no turn between two numbers."""
    return NumberText(text)


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _is(one: object, other: object) -> bool:
    return one is other


def _text(value: object) -> str:
    """Return a scalar; half of a surrogate pair has no bytes of its own, so it stays an escape."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() else _SURROGATES.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
