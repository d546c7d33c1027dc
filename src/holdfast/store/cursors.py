"""Opaque page cursors: the position at which a page ended, bound to its order."""

from __future__ import annotations

import base64
import binascii
import re

from holdfast.errors import Fault, ValidationError

_BODY = re.compile(r"([A-Z_]+)((?:\.-?\d{1,19})+)", re.ASCII)
_LARGEST = 2**63 - 1
"""No engine has larger positions, and some raise an error for a larger number."""

BEYOND = "\U0010ffff"
"""Sorts behind every key of a record: the last code point of Unicode."""


def write_cursor(order: str, *position: int) -> str:
    """Return a cursor for a position in an order."""
    body = ".".join([order, *map(str, position)])
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def read_cursor(cursor: str, order: str, parts: int = 1) -> tuple[int, ...]:
    """Return the position of a cursor; refuse garbage and cursors of another order."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        match = _BODY.fullmatch(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (UnicodeError, binascii.Error, AttributeError):
        match = None
    found = tuple(map(int, match[2].split(".")[1:])) if match else ()
    if not match or match[1] != order or len(found) != parts or max(map(abs, found)) > _LARGEST:
        raise ValidationError(
            [Fault("cursor", "INVALID", f"must come from a page listed in order {order}")]
        )
    return found
