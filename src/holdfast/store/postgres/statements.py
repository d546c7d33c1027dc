"""The statements, one file each, completed for a schema."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources

import msgspec

_PARAMETER = re.compile(r"%\((\w+)\)s(?:::(\w+(?:\[\])?))?")
_NAME = re.compile(r"%\((\w+)\)s")
_INCLUDE = re.compile(r"\{(columns|brief|failed|candidates|waiting)\}")


_OIDS = {
    "": 0,
    "boolean": 16,
    "boolean[]": 1000,
    "bytea": 17,
    "bytea[]": 1001,
    "bigint": 20,
    "bigint[]": 1016,
    "integer": 20,
    "integer[]": 1007,
    "smallint": 20,
    "float8": 701,
    "float8[]": 1022,
    "text": 25,
    "text[]": 1009,
    "jsonb": 25,
    "timestamptz": 1184,
    "timestamptz[]": 1185,
}
"""The OID that a parameter is sent with when a statement casts it to a type."""


class Statement(msgspec.Struct, frozen=True):
    """A statement with parameters $1, $2, ... and their names."""

    text: str
    names: tuple[str, ...]
    oids: tuple[int, ...]
    """The type of each parameter; 0 where PostgreSQL infers it."""
    sent: bytes
    """The encoded text: psycopg recognises a statement that it sent before by this object."""


@cache
def statement(name: str, schema: str) -> Statement:
    """Return a statement of ``queries/`` without its comments.

    It replaces ``{schema}`` and the fragments that several share: ``{columns}`` of a job,
    ``{brief}``, the same without large contents, and ``{failed}`` of a search for failures.
    Parameters have names there
    and get numbers here, once: psycopg would convert a long statement again for every call.
    """
    return completed(_read(name), schema)


@lru_cache(maxsize=1_000)
def completed(text: str, schema: str) -> Statement:
    """Return a statement that was put together from constant parts."""
    text = _INCLUDE.sub(lambda part: _read(part[1]), text)
    text = text.replace("{schema}", f'"{schema}"')  # it may be a keyword
    oids: dict[str, int] = {}
    for parameter, cast in _PARAMETER.findall(text):
        oids.setdefault(parameter, _OIDS[cast])
    places = {parameter: place for place, parameter in enumerate(oids, 1)}
    numbered = _NAME.sub(lambda found: f"${places[found[1]]}", text)
    return Statement(numbered, tuple(oids), tuple(oids.values()), numbered.encode())


@cache
def _read(name: str) -> str:
    file = resources.files("holdfast.store.postgres") / "queries" / f"{name}.sql"
    lines = file.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))
