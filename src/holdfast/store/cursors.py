"""Opaque page cursors: where the last page ended, bound to the order it was listed in."""

from __future__ import annotations

import base64
import binascii
import re

from holdfast.errors import Fault, ValidationError

_BODY = re.compile(r"([A-Z_]+)((?:\.-?\d{1,19})+)", re.ASCII)
_LARGEST = 2**63 - 1
"""No engine numbers its places beyond this, and some cannot even be asked about such a one."""

BEYOND = "\U0010ffff"
"""Behind every key of a record: Unicode has no character after this one, and never will."""


def write_cursor(order: str, *place: int) -> str:
    """Return a cursor for a place in an order."""
    body = ".".join([order, *map(str, place)])
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def read_cursor(cursor: str, order: str, parts: int = 1) -> tuple[int, ...]:
    """Return the place a cursor points to; refuse garbage and cursors of another order."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        match = _BODY.fullmatch(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (UnicodeError, binascii.Error, AttributeError):
        match = None
    place = tuple(map(int, match[2].split(".")[1:])) if match else ()
    if not match or match[1] != order or len(place) != parts or max(map(abs, place)) > _LARGEST:
        raise ValidationError(
            [Fault("cursor", "INVALID", f"must come from a page listed in order {order}")]
        )
    return place
