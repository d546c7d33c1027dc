"""The declared fields of a request: how each is read, and its JSON Schema."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from urllib.parse import parse_qsl

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.payload import clean
from holdfast.model.times import format_duration, parse_duration, parse_timestamp, shown
from holdfast.runtime.off_loop import take_a_break

NULL = msgspec.Raw(b"null")
Schema = Mapping[str, object]
MAX_PARAMETERS = 1000
MAX_REST = 262_144
"""Bytes of a body beside the fields that may be large, such as a payload or the jobs of a batch."""
MOST_VALUES = 300_000
"""Values of a body that is decoded as a whole: 8 MiB of job ids have 200,000."""
_DEEP = re.compile(r"([a-z_]+)\[(.*)\]", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a query, a header or a body."""

    name: str
    schema: Schema
    read: Callable[[object], object] = lambda value: value
    """Checks and converts a value, or raises ValueError; by default the operation checks it."""
    many: bool = False
    """In a query: may be repeated."""
    deep: bool = False
    """In a query: ``name[key]=value`` any number of times."""
    raw: bool = False
    """In a body: the value stays JSON text, which is neither decoded nor checked here."""
    required: bool = False
    description: str = ""


def decode_json(body: bytes) -> object:
    """Decode a JSON body; ValidationError when it is not JSON, or has too many values.

    Decoding stops every thread, a million values for 50 ms and more.
    """
    if len(body) > MAX_REST and sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        message = f"must not have more than {MOST_VALUES} values"
        raise ValidationError([Fault("body", "TOO_LARGE", message)])
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _not_json("TOO_DEEP", "must not be nested this deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise _not_json("NOT_JSON", f"must be valid JSON: {error}") from None


def raw_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object, each still as raw JSON."""
    try:
        return _object.decode(body)
    except RecursionError:
        raise _not_json("TOO_DEEP", "must not be nested this deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        code = "INVALID" if isinstance(error, msgspec.ValidationError) else "NOT_JSON"
        raise _not_json(code, f"must be a JSON object: {error}") from None


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_rest(body: bytes, large: Collection[str]) -> None:
    """Refuse a large object unless these fields make it large: reading every name takes long."""
    if len(body) <= MAX_REST:
        return
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        parts = _large_parts(frozenset(large)).decode(body)
        take_a_break()
        size = len(body) - sum(len(bytes(part)) for part in msgspec.structs.astuple(parts))
        if size > MAX_REST:
            message = f"must have at most {MAX_REST} bytes beside {', '.join(large)}, got {size}"
            raise ValidationError([Fault("body", "TOO_LARGE", message)])


@lru_cache(maxsize=64)
def _large_parts(names: frozenset[str]) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder of the fields that may be large; all others are skipped, not built."""
    fields = [(name, msgspec.Raw, msgspec.Raw(b"")) for name in sorted(names)]
    return msgspec.json.Decoder(msgspec.defstruct("LargeParts", fields))


def read_fields(
    body: bytes, fields: Sequence[Field], path: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Read a JSON object with these fields only; an empty body is an empty object.

    It may repeat what the ``path`` names, such as the job.
    """
    own = _given(body, {field.name for field in fields if field.raw})
    faults = [
        Fault(name, "CONFLICT", f"must be {shown(value)} as in the path, got {shown(own[name])}")
        for name, value in (path or {}).items()
        if name in own and own[name] != value
    ]
    return _read({k: v for k, v in own.items() if k not in (path or {})}, fields, faults)


def _given(body: bytes, raw: Collection[str]) -> dict[str, object]:
    if not body.strip():
        return {}
    if raw:
        check_rest(body, raw)
        return {
            name: value if name in raw else decode_json(bytes(value))
            for name, value in raw_fields(body).items()
        }
    given = decode_json(body)
    if not isinstance(given, dict):
        raise _not_json("INVALID", f"must be a JSON object, got {shown(given)}")
    return {str(name): value for name, value in given.items()}


def read_query(text: str, fields: Sequence[Field]) -> dict[str, object]:
    """Read a query string with these fields only."""
    if not text and not any(field.required for field in fields):
        return {}
    known = {field.name: field for field in fields}
    given: dict[str, object] = {}
    faults: list[Fault] = []
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="replace", max_num_fields=MAX_PARAMETERS
        )
    except ValueError:
        message = f"must not have more than {MAX_PARAMETERS} parameters"
        raise ValidationError([Fault("query", "TOO_LONG", message)]) from None
    for name, value in pairs:
        match = _DEEP.fullmatch(name)
        if match and match[1] in known and known[match[1]].deep:
            tags = given.setdefault(match[1], {})
            assert isinstance(tags, dict)
            tags[match[2]] = value
        elif name in known and known[name].many:
            several = given.setdefault(name, [])
            assert isinstance(several, list)
            several.append(value)
        elif name in given:
            faults.append(Fault(name, "NOT_UNIQUE", "must be given once"))
        else:
            given[name] = _typed(value, known.get(name))
    return _read(given, fields, faults)


def _typed(text: str, field: Field | None) -> object:
    """Return a text as the type of the field's schema, if it can be read as one."""
    kind = field.schema.get("type") if field else None
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _read(
    given: Mapping[str, object], fields: Sequence[Field], faults: Sequence[Fault] = ()
) -> dict[str, object]:
    known = {field.name for field in fields}
    found = [*faults, *unknown(given, known)]
    values: dict[str, object] = {}
    for field in fields:
        if field.name not in given:
            if field.required:
                found.append(Fault(field.name, "REQUIRED", "is required"))
            continue
        try:
            values[field.name] = field.read(given[field.name])
        except ValueError as error:
            found.append(Fault(field.name, "INVALID", str(error)))
    if found:
        raise ValidationError(found)
    return values


def unknown(given: Iterable[str], known: Container[str]) -> list[Fault]:
    """Return a fault for each name that no field has."""
    return [
        Fault(clean(name, 60), "UNKNOWN_FIELD", "is not a field of this request")
        for name in given
        if name not in known
    ]


def _not_json(code: str, message: str) -> ValidationError:
    return ValidationError([Fault("body", code, message)])


DURATION: Schema = {"$ref": "#/components/schemas/Duration"}
TIMESTAMP: Schema = {"type": "string", "format": "date-time"}
NO_NUL = r"^[^\u0000]*$"
BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def text(
    name: str,
    *,
    maximum: int = 256,
    minimum: int = 0,
    pattern: str = NO_NUL,
    required: bool = False,
    description: str = "",
) -> Field:
    """A text of bounded length."""
    rule = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not minimum <= len(value) <= maximum:
            raise ValueError(f"must be a string of {minimum} to {maximum} characters")
        if clean(value) != value or not rule.search(value):
            raise ValueError(f"must match {pattern}, got {shown(value)}")
        return value

    schema = {"type": "string", "minLength": minimum, "maxLength": maximum, "pattern": pattern}
    return Field(name=name, schema=schema, read=read, required=required, description=description)


def flag(name: str, description: str = "") -> Field:
    """True or false."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, got {shown(value)}")
        return value

    return Field(name=name, schema={"type": "boolean"}, read=read, description=description)


def integer(
    name: str,
    minimum: int,
    maximum: int,
    *,
    default: int | None = None,
    required: bool = False,
    description: str = "",
) -> Field:
    """A whole number within bounds."""

    def read(value: object) -> int:
        number = whole(value)
        if (
            isinstance(number, bool)
            or not isinstance(number, int)
            or not minimum <= number <= maximum
        ):
            raise ValueError(f"must be {minimum} to {maximum}, got {shown(value)}")
        return number

    schema: dict[str, object] = {"type": "integer", "minimum": minimum, "maximum": maximum}
    if default is not None:
        schema["default"] = default
    return Field(name=name, schema=schema, read=read, required=required, description=description)


def whole(value: object) -> object:
    """Return 3 for 3.0: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def instant(name: str, *, description: str = "") -> Field:
    """An ISO 8601 timestamp."""
    return Field(name=name, schema=TIMESTAMP, read=parse_timestamp, description=description)


def duration(name: str, *, maximum: float | None = None, description: str = "") -> Field:
    """Seconds or an ISO 8601 duration; a query gives seconds as text."""

    def read(value: object) -> object:
        if isinstance(value, str) and value.replace(".", "", 1).isdigit():
            value = float(value)
        span = parse_duration(value)
        if maximum is not None and span.total_seconds() > maximum:
            raise ValueError(f"must be at most {maximum:g} s, got {format_duration(span)}")
        return span

    return Field(name=name, schema=DURATION, read=read, description=description)


def text_list(
    name: str,
    *,
    choices: Sequence[str] = (),
    minimum: int = 0,
    maximum: int = 1000,
    required: bool = False,
    description: str = "",
) -> Field:
    """A list of texts, or of some of the choices."""

    def read(value: object) -> list[str]:
        if not isinstance(value, list) or not minimum <= len(value) <= maximum:
            raise ValueError(
                f"must be a list of {minimum} to {maximum} strings, got {shown(value)}"
            )
        for one in value:
            if not isinstance(one, str) or len(one) > 256 or clean(one) != one:
                raise ValueError(
                    f"must contain strings of at most 256 characters, got {shown(one)}"
                )
            if choices and one not in choices:
                raise ValueError(f"must be one of {', '.join(choices)}, got {shown(one)}")
        return value

    item: dict[str, object] = {"type": "string", "maxLength": 256, "pattern": NO_NUL}
    if choices:
        item = {"type": "string", "enum": list(choices)}
    schema = {"type": "array", "items": item, "minItems": minimum, "maxItems": maximum}
    return Field(
        name=name, schema=schema, read=read, many=True, required=required, description=description
    )


def base64_bytes(name: str, *, required: bool = False, description: str = "") -> Field:
    """Bytes as base64."""

    def read(value: object) -> bytes:
        try:
            return base64.b64decode(value, validate=True)  # type: ignore[arg-type]  # TypeError
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"must be base64, got {shown(value)}") from None

    schema = {"type": "string", "contentEncoding": "base64", "pattern": BASE64}
    return Field(name=name, schema=schema, read=read, required=required, description=description)
