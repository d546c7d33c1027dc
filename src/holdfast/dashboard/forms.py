"""Reads forms: sizes are judged first, and long ones are decoded beside the event loop.

``urllib.parse.parse_qs`` takes eighty times the size of a form in memory, and 75 ms per megabyte.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import partial

from holdfast.api.errors import RequestError
from holdfast.http.responses import Receive
from holdfast.runtime.off_loop import SHORT, off_loop

FORM = b"application/x-www-form-urlencoded"
ARRIVAL = 30.0
MOST_FIELDS = 2000
LOGIN_BYTES = 8192
"""Of a form that needs no key: a token, a key, and the address of a page."""
EXPENSE = 8
"""Decoding a byte of a form takes as long as reading so many bytes."""


async def read_form(
    headers: Mapping[bytes, bytes], receive: Receive, most: int
) -> dict[str, list[str]]:
    """Read the fields of a form of at most so many bytes.

    RequestError when it is something else, too large or too slow.
    """
    if headers.get(b"content-type", FORM).partition(b";")[0].strip().lower() != FORM:
        raise RequestError("UNSUPPORTED_MEDIA_TYPE", "must be a form")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(ARRIVAL):
            body = await _body(receive, most)
    except TimeoutError:
        raise RequestError("REQUEST_TIMEOUT") from None
    return await off_loop(EXPENSE * len(body), partial(form_fields, body))


def form_fields(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form; RequestError when there are too many."""
    if body.count(b"&") >= MOST_FIELDS:
        raise RequestError("TOO_LARGE", f"a form may have {MOST_FIELDS} fields")
    fields: dict[str, list[str]] = {}
    for pair in filter(None, body.split(b"&")):
        name, _, value = pair.partition(b"=")
        fields.setdefault(_decoded(name), []).append(_decoded(value))
    return fields


async def _body(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("REQUEST_TIMEOUT")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_large(most: int) -> RequestError:
    return RequestError("TOO_LARGE", f"this form may have {most} bytes")


def _decoded(data: bytes) -> str:
    """Decode in slices: a substitution needs ninety bytes for each escape until it ends."""
    spaced, parts, at = data.replace(b"+", b" "), [], 0
    while at < len(spaced):
        end = at + SHORT
        cut = spaced.rfind(b"%", end - 2, end)  # an escape stays whole
        part = spaced[at : end if cut < 0 else cut]
        parts.append(_ESCAPE.sub(_byte, part))
        at += len(part)
    return b"".join(parts).decode("utf-8", "replace")


def _byte(match: re.Match[bytes]) -> bytes:
    return _BYTES[int(match[1], 16)]


_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_BYTES = [bytes([code]) for code in range(256)]
