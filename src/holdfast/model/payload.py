"""Payloads: values to bytes at submission, checked once, the same for every store.

JSON that one store or language would refuse or change is refused here: NaN and Infinity,
nesting deeper than 64, NUL or unpaired surrogates in strings or keys, integers over 4300
digits. The checks read the encoded bytes first and walk the value only when they must.
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from hashlib import blake2b
from itertools import accumulate
from pathlib import PurePath
from typing import NoReturn, cast

import msgspec

from holdfast.errors import Fault, PermanentError, ValidationError
from holdfast.model.job import Encoding, Job
from holdfast.model.policy import MEBIBYTE
from holdfast.model.reserved import RESERVED

MAX_DEPTH = 64
MAX_RESULT = 16 * MEBIBYTE
MAX_DIGITS = 4300
BYTES_KEY = f"{RESERVED}bytes"
"""The one key of the stored object that holds a result of bytes, as base64."""
_MARK = b'{"%s":' % BYTES_KEY.encode()

_LARGE = 262_144
"""Bytes of JSON whose decoding may take more than 10 ms."""
_SLICE = 131_072
_OUTSIDE = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""Whole strings and what is between them."""
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WORD = re.compile(rb"[-+.0-9A-Za-z]*+")
_HUGE_EXPONENT = re.compile(rb"[eE][-+]?[0-9]{3}")
_LONG_NUMBER = 100
"""Characters; a shorter number with an exponent of two digits is finite."""
_BETWEEN_WORDS = bytes(32 if byte in b",:[]{}\t\r\n" else byte for byte in range(256))
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*+"?', re.DOTALL)
"""A string or, in invalid text, the rest of it. Possessive: no input makes it backtrack."""
_NESTING = bytes(1 if byte in b"[{" else 255 for byte in range(256))
_FLAT = bytes(set(range(256)) - set(b"[]{}"))
_BYTES = cast("tuple[type[bytes], ...]", (bytes, bytearray, memoryview))  # bytes() takes all
_SCALARS = frozenset({str, int, float, bool, type(None)})
_LISTS = (list, tuple, set, frozenset)


class PayloadError(ValueError):
    """A value that cannot be a payload."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

    def fault(self, field: str) -> Fault:
        """Return this error as a fault of the given field."""
        return Fault(field, self.code, str(self))


def encode(value: object, limit: int | None = None) -> tuple[bytes, Encoding]:
    """Return the bytes to store. ``bytes`` stay as they are; ``msgspec.Raw`` is checked JSON.

    Above the limit it is refused, raw JSON before it is read.
    """
    if isinstance(value, _BYTES):
        data, encoding = bytes(value), Encoding.BYTES
    elif isinstance(value, msgspec.Raw):
        data, encoding = bytes(value), Encoding.JSON
    else:
        data, encoding = encode_json(value), Encoding.JSON
    if limit is not None and (fault := size_fault(len(data), limit)):
        raise PayloadError(fault.code, fault.message)
    if isinstance(value, msgspec.Raw):
        check_json(data)
    return data, encoding


def updated_payload(job: Job, value: object) -> bytes:
    """Return the bytes of a new payload for a job; ``ValidationError`` when it cannot have it."""
    try:
        data, encoding = encode(value)
    except PayloadError as error:
        raise ValidationError([error.fault("payload")]) from None
    if encoding is not job.encoding:
        kind = "JSON" if job.encoding is Encoding.JSON else "bytes"
        raise ValidationError([Fault("payload", "INVALID", f"must be {kind}, as it was before")])
    return data


def encode_json(value: object) -> bytes:
    """Encode a value as strict JSON; PayloadError says why it cannot be encoded."""
    try:
        data = _encoder.encode(value)
        _syntax.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise PayloadError("INVALID_TEXT", "must not hold unpaired surrogates") from None
    except (TypeError, ValueError) as error:
        raise _refused(error) from None
    if len(data) > MAX_DEPTH:
        _check_depth(data)
    if b"null" in data and _has_non_finite(value):
        raise PayloadError("NOT_FINITE", "must not hold NaN or Infinity")
    if b"\\" in data and b"\\u" in data:  # one byte is found much faster than two
        check_json(data)
    return data


def encode_result(value: object) -> bytes | None:
    """Encode what a handler returns; PermanentError when it cannot be stored."""
    if value is None:
        return None
    if isinstance(value, _BYTES):
        value = {BYTES_KEY: bytes(value)}
    try:
        data = encode_json(value)
    except PayloadError as error:
        raise PermanentError(f"result {error}", code="RESULT_INVALID") from None
    if len(data) > MAX_RESULT:
        message = f"result of {len(data)} bytes exceeds limit of {MAX_RESULT} bytes"
        raise PermanentError(message, code="RESULT_TOO_LARGE")
    return data


def decode_result(data: bytes | None) -> object:
    """Return what a handler returned: decoded JSON, or bytes."""
    if data is None:
        return None
    value = msgspec.json.decode(data)
    if not data.startswith(_MARK):
        return value
    try:
        return msgspec.convert(value, _MarkedBytes).value
    except msgspec.ValidationError:
        return value


def result_text(data: bytes | None) -> object:
    """Return what a handler returned to be sent on: JSON stays text, which takes no decoding."""
    return decode_result(data) if data is None or data.startswith(_MARK) else json_text(data)


def json_text(data: bytes) -> msgspec.Raw:
    """Return stored JSON as it is; ValueError when a foreign program wrote what is not JSON."""
    if not data.isascii():
        data.decode()
    return _syntax.decode(data)


class _MarkedBytes(msgspec.Struct, forbid_unknown_fields=True):
    """A result of bytes as it is stored: JSON has no bytes, so that they need a mark."""

    value: bytes = msgspec.field(name=BYTES_KEY)


def check_json(data: bytes) -> None:
    """Check JSON text from outside; PayloadError says what is wrong with it."""
    if len(data) > _LARGE:
        _check_in_slices(data)
        return
    _check_depth(data)
    try:
        value = _decoder.decode(data)  # is strict, but its errors do not say enough
    except (msgspec.DecodeError, ValueError):
        value = _decode_strictly(data)
    if b"\\" in data and b"\\u" in data:
        _check_text(value)


def payload_digest(data: bytes, encoding: Encoding) -> str:
    """Return what equal payloads share: JSON up to the order of keys and white space.

    Larger JSON shares its bytes: decoding 16 MiB stops every thread for 1 s, 1 MiB for 45 ms.
    """
    if encoding is Encoding.BYTES or len(data) > MEBIBYTE:
        person = b"bytes" if encoding is Encoding.BYTES else b"large"
        return blake2b(data, digest_size=16, person=person).hexdigest()
    with _no_collection(data):
        canonical = _canonical.encode(_exact.decode(data))
    return blake2b(canonical, digest_size=16).hexdigest()


@contextmanager
def _no_collection(data: bytes) -> Generator[None, None, None]:
    """Collect no garbage while large JSON is decoded: it has no cycles, and threads would wait."""
    if len(data) <= _LARGE or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def is_model(kind: object) -> bool:
    """Whether a type is a pydantic model, without importing pydantic."""
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def clean(text: str, limit: int = 65_536) -> str:
    """Make a text storable everywhere: no NUL, no unpaired surrogates, bounded length."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def raw_size(value: object) -> int:
    """Return how many bytes a payload has that is JSON text already; 0 for any other value."""
    return len(bytes(value)) if isinstance(value, msgspec.Raw) else 0


def size_fault(size: int, limit: int) -> Fault | None:
    """Return the fault of a payload above the limit, if it is above."""
    if size <= limit:
        return None
    shown, most = f"{size / MEBIBYTE:.1f} MB", f"{limit / MEBIBYTE:.1f} MB"
    if shown == most:
        shown, most = f"{size} bytes", f"{limit} bytes"
    return Fault("payload", "TOO_LARGE", f"Job payload size {shown} exceeds limit of {most}")


def _plain(value: object) -> object:
    """Convert what msgspec cannot encode: models, paths, and subclasses of scalars."""
    if isinstance(value, msgspec.Raw):  # encoded as it is: only to be checked
        check_json(bytes(value))
        return None
    if is_model(type(value)):
        return value.model_dump(mode="json")  # type: ignore[attr-defined]  # is_model() saw it
    for scalar in (str, int, float):
        if isinstance(value, scalar):
            return scalar(value)
    if isinstance(value, PurePath):
        return str(value)
    kind = type(value)
    raise TypeError(
        f"type {kind.__module__}.{kind.__qualname__} is not supported, give its fields as a"
        " dataclass or dict"
    )


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder()
_exact = msgspec.json.Decoder(float_hook=Decimal)
_canonical = msgspec.json.Encoder(order="deterministic", decimal_format="number")
"""With ``_exact`` it keeps every digit of a number, so that no two numbers become equal."""
_syntax = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax of JSON in 0.1 us, for parts of a value that were encoded elsewhere."""


def _refused(error: Exception) -> PayloadError:
    if "integer string conversion" in str(error):
        return _too_long()
    return PayloadError("NOT_JSON", f"must be JSON-serialisable: {error}")


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    steps = _STRING.sub(b"", data).translate(_NESTING, _FLAT)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH:
        raise _too_deep()


def _check_in_slices(data: bytes) -> None:
    """Check large JSON without making a value of it; other threads run between two slices.

    Decoding 16 MiB of small lists stops every thread for 0.7 s, checking their syntax for 25 ms.
    """
    try:
        if not data.isascii():
            data.decode()
        _syntax.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError:
        raise PayloadError("INVALID_TEXT", "must be valid UTF-8") from None
    except msgspec.DecodeError as error:
        raise PayloadError("NOT_JSON", f"must be valid JSON: {error}") from None
    depth = 0
    for part in _without_strings(data):
        steps = memoryview(part.translate(_NESTING, _FLAT)).cast("b")
        if max(accumulate(steps, initial=depth)) > MAX_DEPTH:
            raise _too_deep()
        depth += sum(steps)
        _check_numbers(part)
    if b"\\u0000" in data and b"\\u0000" in data.replace(b"\\\\", b""):
        raise PayloadError("INVALID_TEXT", "must not hold NUL in strings or keys")


def _without_strings(data: bytes) -> Iterator[bytes]:
    """Yield valid JSON text without its strings, in slices that divide no number."""
    at = 0
    while at < len(data):
        end = _end(_OUTSIDE, data, at)
        if end == at:  # at a string that is longer than a slice
            at += 1
            while data[at] != ord('"'):
                at = _end(_INSIDE, data, at)
            at += 1
            continue
        end = _end(_WORD, data, end, len(data))
        yield _STRING.sub(b"", data[at:end])
        at = end


def _end(pattern: re.Pattern[bytes], data: bytes, at: int, size: int = _SLICE) -> int:
    found = pattern.match(data, at, at + size)
    return at if found is None else found.end()


def _check_numbers(part: bytes) -> None:
    words = part.translate(_BETWEEN_WORDS).split()
    if max(map(len, words), default=0) < _LONG_NUMBER and not _HUGE_EXPONENT.search(part):
        return
    for word in words:
        if word.removeprefix(b"-").isdigit():
            _bounded_int(word.decode())
        elif not word.isalpha():
            _finite_float(word.decode())


def _too_deep() -> PayloadError:
    return PayloadError("TOO_DEEP", f"must not nest deeper than {MAX_DEPTH} levels")


def _too_long() -> PayloadError:
    return PayloadError("NUMBER_TOO_LONG", f"must not hold integers over {MAX_DIGITS} digits")


def _refuse_constant(name: str) -> NoReturn:
    raise PayloadError("NOT_FINITE", f"must not hold NaN or Infinity, got {name:.60}")


def _finite_float(text: str) -> None:
    if not math.isfinite(float(text)):
        _refuse_constant(text)


def _bounded_int(text: str) -> None:
    if len(text.removeprefix("-")) > MAX_DIGITS:
        raise _too_long()


_strict = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite_float, parse_int=_bounded_int
)
"""Made once: making one takes longer than decoding a small payload."""


def _decode_strictly(data: bytes) -> object:
    try:
        return _strict.decode(data.decode())
    except UnicodeDecodeError:
        raise PayloadError("INVALID_TEXT", "must be valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise PayloadError("NOT_JSON", f"must be valid JSON: {error}") from None


def _has_non_finite(value: object) -> bool:
    return any(type(leaf) is float and not math.isfinite(leaf) for leaf in _leaves(value))


def _check_text(value: object) -> None:
    for leaf in _leaves(value):
        if isinstance(leaf, str):
            if "\x00" in leaf:
                raise PayloadError("INVALID_TEXT", "must not hold NUL in strings or keys")
            if not leaf.isascii() and any("\ud800" <= c <= "\udfff" for c in leaf):
                raise PayloadError("INVALID_TEXT", "must not hold unpaired surrogates")


def _leaves(value: object) -> Iterator[object]:
    """Yield every scalar and key, without recursion; objects as the encoder sees them."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind in _SCALARS:
            yield node
        elif isinstance(node, dict):
            yield from node
            waiting.extend(node.values())  # pyright: ignore[reportUnknownArgumentType]  # anything
        elif isinstance(node, _LISTS):
            waiting.extend(node)  # pyright: ignore[reportUnknownArgumentType]  # anything
        else:
            waiting.append(msgspec.to_builtins(node, enc_hook=_plain))
