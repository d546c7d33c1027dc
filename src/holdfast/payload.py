"""Payloads: values to bytes at submission, checked once, the same for every store.

JSON that one store or language would refuse or change is refused here: NaN and Infinity,
nesting deeper than 64, NUL or unpaired surrogates in strings or keys, endless integers.
The checks look at the encoded bytes first and walk the value only when they must.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from holdfast.errors import Fault
from holdfast.job import Encoding
from holdfast.policy import MEBIBYTE

MAX_DEPTH = 64
MAX_DIGITS = 4300

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_DIGITS = re.compile(rb"\d{%d}" % (MAX_DIGITS + 1))
_ESCAPES = re.compile(rb"\\u0000|\\u[dD][89abAB]|\\u[dD][c-fC-F]")


def is_model(kind: object) -> bool:
    """Whether a type is a pydantic model, without importing pydantic."""
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def _dump_model(value: object) -> object:
    if is_model(type(value)):
        return value.model_dump(mode="json")  # type: ignore[attr-defined]  # pydantic, by duck
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


_encoder = msgspec.json.Encoder(enc_hook=_dump_model)


class PayloadError(ValueError):
    """A value that cannot be a payload."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

    def fault(self, field: str) -> Fault:
        """Return this error as a fault of the given field."""
        return Fault(field, self.code, str(self))


def encode(value: object) -> tuple[bytes, Encoding]:
    """Return the bytes to store. ``bytes`` stay as they are; ``msgspec.Raw`` is checked JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), Encoding.BYTES
    if isinstance(value, msgspec.Raw):
        data = bytes(value)
        check_json(data)
        return data, Encoding.JSON
    return encode_json(value), Encoding.JSON


def encode_json(value: object) -> bytes:
    """Encode a value as strict JSON, or say why it cannot be."""
    try:
        data = _encoder.encode(value)
    except OverflowError:
        data = _encode_wide_integers(value)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise PayloadError("INVALID_TEXT", "must not hold unpaired surrogates") from None
    except (TypeError, ValueError) as error:
        raise PayloadError("NOT_JSON", f"must be JSON-serialisable: {error}") from None
    if b"null" in data and _has_non_finite(value):
        raise PayloadError("NOT_FINITE", "must not hold NaN or Infinity")
    _check_depth(data)
    if b"\\u0000" in data:
        check_json(data)
    return data


def check_json(data: bytes) -> None:
    """Check JSON text that came from outside; raise what is wrong with it."""
    _check_depth(data)
    if _DIGITS.search(_STRING.sub(b"", data)):
        raise PayloadError("NUMBER_TOO_LONG", f"must not hold integers over {MAX_DIGITS} digits")
    try:
        value = json.loads(
            data.decode(), parse_constant=_refuse_constant, parse_float=_finite_float
        )
    except UnicodeDecodeError:
        raise PayloadError("INVALID_TEXT", "must be valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise PayloadError("NOT_JSON", f"must be valid JSON: {error}") from None
    if _ESCAPES.search(data):
        _check_text(value)


def clean(text: str, limit: int = 65_536) -> str:
    """Make any text storable everywhere: no NUL, no unpaired surrogates, bounded length."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def size_fault(size: int, limit: int) -> Fault | None:
    """Return the fault of a payload above the limit."""
    if size <= limit:
        return None
    shown, most = f"{size / MEBIBYTE:.1f}", f"{limit / MEBIBYTE:.1f}"
    if shown == most:
        return Fault(
            "payload", "TOO_LARGE", f"Job payload size {size} bytes exceeds limit of {limit} bytes"
        )
    return Fault("payload", "TOO_LARGE", f"Job payload size {shown} MB exceeds limit of {most} MB")


def _encode_wide_integers(value: object) -> bytes:
    """Integers beyond 64 bits are legal JSON, but only the standard encoder writes them."""
    try:
        return json.dumps(
            msgspec.to_builtins(value, enc_hook=_dump_model),
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(
            "NUMBER_TOO_LONG", f"must not hold integers over {MAX_DIGITS} digits: {error}"
        ) from None


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep()
        elif byte in b"]}":
            depth -= 1


def _too_deep() -> PayloadError:
    return PayloadError("TOO_DEEP", f"must not nest deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise PayloadError("NOT_FINITE", f"must not hold NaN or Infinity, got {name}")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse_constant(text)
    return number


def _has_non_finite(value: object) -> bool:
    return any(
        isinstance(leaf, float) and not math.isfinite(leaf)
        for leaf in _leaves(msgspec.to_builtins(value, enc_hook=_dump_model))
    )


def _check_text(value: object) -> None:
    for leaf in _leaves(value):
        if isinstance(leaf, str):
            if "\x00" in leaf:
                raise PayloadError("INVALID_TEXT", "must not hold NUL in strings or keys")
            if not leaf.isascii() and any("\ud800" <= c <= "\udfff" for c in leaf):
                raise PayloadError("INVALID_TEXT", "must not hold unpaired surrogates")


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
