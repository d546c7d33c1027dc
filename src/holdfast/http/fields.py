"""Reading requests: every field once, every fault at once, nothing that was not asked for."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qsl

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.payload import clean
from holdfast.model.times import format_duration, parse_duration, shown

Schema = Mapping[str, object]
MOST_PARAMETERS = 1000
_DEEP = re.compile(r"([a-z_]+)\[(.*)\]", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a request may say."""

    name: str
    schema: Schema
    read: Callable[[object], object] = lambda value: value
    """Checks and turns a value; ValueError says what is wrong. Else the operation checks it."""
    many: bool = False
    deep: bool = False
    """In a query: ``name[key]=value`` any number of times."""
    required: bool = False
    help: str = ""


def decoded(body: bytes) -> object:
    """Return the JSON in a body; ValidationError when it is none."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _not_json("TOO_DEEP", "must not nest so deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise _not_json("NOT_JSON", f"must be valid JSON: {error}") from None


def raw_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object, each still as it came."""
    try:
        return _object.decode(body)
    except RecursionError:
        raise _not_json("TOO_DEEP", "must not nest so deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        code = "INVALID" if isinstance(error, msgspec.ValidationError) else "NOT_JSON"
        raise _not_json(code, f"must be a JSON object: {error}") from None


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_form(body: bytes, fields: Sequence[Field]) -> dict[str, object]:
    """Read a JSON object with these fields and no others; an empty body is an empty object."""
    given = decoded(body) if body.strip() else {}
    if not isinstance(given, dict):
        raise _not_json("INVALID", f"must be a JSON object, got {shown(given)}")
    return _read({str(name): value for name, value in given.items()}, fields)


def read_query(text: str, fields: Sequence[Field]) -> dict[str, object]:
    """Read a query string with these fields and no others."""
    if not text and not any(field.required for field in fields):
        return {}
    known = {field.name: field for field in fields}
    given: dict[str, object] = {}
    faults: list[Fault] = []
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="replace", max_num_fields=MOST_PARAMETERS
        )
    except ValueError:
        told = f"must not have more than {MOST_PARAMETERS} parameters"
        raise ValidationError([Fault("query", "TOO_LONG", told)]) from None
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
    """A text as what the field's schema asks for, if it looks like it."""
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
    found = [
        *faults,
        *(
            Fault(clean(name, 60), "UNKNOWN_FIELD", "is not taken here")
            for name in given
            if name not in known
        ),
    ]
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


def _not_json(code: str, message: str) -> ValidationError:
    return ValidationError([Fault("body", code, message)])


# --- kinds of fields -------------------------------------------------------------------------

DURATION: Schema = {"$ref": "#/components/schemas/Duration"}
TIMESTAMP: Schema = {"type": "string", "format": "date-time"}
NO_CONTROLS = r"^[^\u0000]*$"
BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def text(
    name: str,
    *,
    most: int = 256,
    least: int = 0,
    pattern: str = NO_CONTROLS,
    required: bool = False,
    help: str = "",  # noqa: A002  # the word for it
) -> Field:
    """A text of a bounded length."""
    rule = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise ValueError(f"must be a string of {least} to {most} characters")
        if clean(value) != value or not rule.search(value):
            raise ValueError(f"must match {pattern}, got {shown(value)}")
        return value

    schema = {"type": "string", "minLength": least, "maxLength": most, "pattern": pattern}
    return Field(name=name, schema=schema, read=read, required=required, help=help)


def flag(name: str, help: str = "") -> Field:  # noqa: A002
    """True or false."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, got {shown(value)}")
        return value

    return Field(name=name, schema={"type": "boolean"}, read=read, help=help)


def integer(
    name: str,
    least: int,
    most: int,
    *,
    default: int | None = None,
    required: bool = False,
    help: str = "",  # noqa: A002
) -> Field:
    """A whole number within bounds."""

    def read(value: object) -> int:
        number = whole(value)
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError(f"must be {least} to {most}, got {shown(value)}")
        return number

    schema: dict[str, object] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default
    return Field(name=name, schema=schema, read=read, required=required, help=help)


def whole(value: object) -> object:
    """Return 3 for 3.0: to JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def duration(name: str, *, most: float | None = None, help: str = "") -> Field:  # noqa: A002
    """Seconds or an ISO 8601 duration; in a query also seconds as text."""

    def read(value: object) -> object:
        if isinstance(value, str) and value.replace(".", "", 1).isdigit():
            value = float(value)
        span = parse_duration(value)  # type: ignore[arg-type]  # it checks the type itself
        if most is not None and span.total_seconds() > most:
            raise ValueError(f"must be at most {most:g} s, got {format_duration(span)}")
        return span

    return Field(name=name, schema=DURATION, read=read, help=help)


def words(
    name: str,
    *,
    choices: Sequence[str] = (),
    least: int = 0,
    most: int = 1000,
    required: bool = False,
    help: str = "",  # noqa: A002
) -> Field:
    """A list of texts, or of some of a few words."""

    def read(value: object) -> list[str]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError(f"must be a list of {least} to {most} strings, got {shown(value)}")
        for one in value:
            if not isinstance(one, str) or len(one) > 256 or clean(one) != one:
                raise ValueError(f"must hold strings of at most 256 characters, got {shown(one)}")
            if choices and one not in choices:
                raise ValueError(f"must be of {', '.join(choices)}, got {shown(one)}")
        return value

    item: dict[str, object] = {"type": "string", "maxLength": 256, "pattern": NO_CONTROLS}
    if choices:
        item = {"type": "string", "enum": list(choices)}
    schema = {"type": "array", "items": item, "minItems": least, "maxItems": most}
    return Field(name=name, schema=schema, read=read, many=True, required=required, help=help)


def blob(name: str, *, required: bool = False, help: str = "") -> Field:  # noqa: A002
    """Bytes as base64."""

    def read(value: object) -> bytes:
        try:
            return base64.b64decode(value, validate=True)  # type: ignore[arg-type]  # TypeError
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"must be base64, got {shown(value)}") from None

    schema = {"type": "string", "contentEncoding": "base64", "pattern": BASE64}
    return Field(name=name, schema=schema, read=read, required=required, help=help)
