"""The statements, one file each, made ready for a schema."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import msgspec

_PARAMETER = re.compile(r"%\((\w+)\)s(?:::(\w+(?:\[\])?))?")
_GIVEN = re.compile(r"%\((\w+)\)s")
_INCLUDE = re.compile(r"\{(columns|matching|failed)\}")


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
"""What a parameter is sent as when a statement casts it to a type."""


class Statement(msgspec.Struct, frozen=True):
    """A statement ready to be sent: $1, $2, ... and the names of what goes there."""

    text: str
    names: tuple[str, ...]
    oids: tuple[int, ...]
    """The type of each, as PostgreSQL calls it; 0 where it finds that out by itself."""
    sent: bytes
    """The text once more: psycopg knows a statement it sent before by this very object."""


@cache
def statement(name: str, schema: str) -> Statement:
    """Return a statement of ``queries/`` without its comments.

    ``{schema}`` is the only thing filled in, besides the three fragments that several share:
    ``{columns}`` of a job, ``{matching}`` a search, ``{failed}`` as asked. Parameters are named
    there and numbered here, once: psycopg would do it again for every call of a long statement.
    """
    text = _INCLUDE.sub(lambda part: _read(part[1]), _read(name))
    text = text.replace("{schema}", f'"{schema}"')  # which may be a word of SQL
    oids: dict[str, int] = {}
    for given, cast in _PARAMETER.findall(text):
        oids.setdefault(given, _OIDS[cast])
    places = {given: place for place, given in enumerate(oids, 1)}
    numbered = _GIVEN.sub(lambda found: f"${places[found[1]]}", text)
    return Statement(numbered, tuple(oids), tuple(oids.values()), numbered.encode())


@cache
def _read(name: str) -> str:
    file = resources.files("holdfast.store.postgres") / "queries" / f"{name}.sql"
    lines = file.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))
