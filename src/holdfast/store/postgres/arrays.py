"""Arrays in PostgreSQL's binary form, packed in bulk.

A statement takes a whole batch as one array per column. psycopg looks up a dumper for every
element; packing a column at once costs a fifth of that (0.15 us an element).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import ClassVar, Generic, TypeVar

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from holdfast.model.payload import clean

T = TypeVar("T")

_HEAD = struct.Struct("!iiIii")
_SIZE = struct.Struct("!i")
_NULL = _SIZE.pack(-1)
_MOMENT = struct.Struct("!q")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Column(ABC, Generic[T]):
    """One value per row; None is null."""

    element: ClassVar[int]
    array: ClassVar[int]

    __slots__ = ("values",)

    def __init__(self, values: Sequence[T | None]) -> None:
        self.values = values

    def pack(self) -> bytes | None:
        """Return the array in PostgreSQL's binary form.

        None if all values are null: unnest fills up a shorter column with nulls.
        """
        size = len(self.values)
        if not size:
            return _HEAD.pack(0, 0, self.element, 0, 0)[:12]
        if self.values[0] is None and self.values.count(None) == size:
            return None
        return _HEAD.pack(1, 1, self.element, size, 1) + self._elements()

    @abstractmethod
    def _elements(self) -> bytes: ...


class _Fixed(Column[T]):
    """Values of one size."""

    code: ClassVar[str]
    size: ClassVar[int]

    def _elements(self) -> bytes:
        numbers = self._numbers()
        if None not in numbers:
            pairs = chain.from_iterable(zip(repeat(self.size), numbers))
            return struct.pack("!" + ("i" + self.code) * len(numbers), *pairs)
        one = struct.Struct("!i" + self.code)
        return b"".join(_NULL if n is None else one.pack(self.size, n) for n in numbers)

    def _numbers(self) -> Sequence[object]:
        return self.values


class Ints(_Fixed[int]):
    """integer[]"""

    element, array, code, size = 23, 1007, "i", 4


class Longs(_Fixed[int]):
    """bigint[]"""

    element, array, code, size = 20, 1016, "q", 8


class Floats(_Fixed[float]):
    """double precision[]"""

    element, array, code, size = 701, 1022, "d", 8


class Flags(_Fixed[bool]):
    """boolean[]"""

    element, array, code, size = 16, 1000, "?", 1


class Moments(_Fixed[datetime]):
    """timestamptz[]"""

    element, array, code, size = 1184, 1185, "q", 8

    def _numbers(self) -> Sequence[object]:
        return [None if v is None else (v - _EPOCH) // _MICROSECOND for v in self.values]


class Blobs(Column[bytes]):
    """bytea[]"""

    element, array = 17, 1001

    def _elements(self) -> bytes:
        return _packed(self.values)


class Texts(Column[str]):
    """text[]"""

    element, array = 25, 1009

    def _elements(self) -> bytes:
        return _packed([None if v is None else text(v) for v in self.values])


class Documents(Blobs):
    """text[] of JSON that is already encoded."""

    element, array = 25, 1009


def moment(value: datetime) -> bytes:
    """Encode an instant."""
    return _MOMENT.pack((value - _EPOCH) // _MICROSECOND)


def instant(data: bytes) -> datetime:
    """Decode an instant."""
    return _EPOCH + timedelta(microseconds=_MOMENT.unpack(data)[0])


def text(value: str) -> bytes:
    """Encode text, without the characters that PostgreSQL cannot store."""
    if "\x00" in value:
        value = clean(value)
    try:
        return value.encode()
    except UnicodeEncodeError:
        return clean(value).encode()


def _packed(values: Sequence[bytes | None]) -> bytes:
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_SIZE.pack(len(value)))
            parts.append(value)
    return b"".join(parts)


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Column[object]) -> bytes | None:
        return obj.pack()


def register(adapters: AdaptersMap) -> None:
    """Register the dumpers that send columns."""
    for kind in (Ints, Longs, Floats, Flags, Moments, Blobs, Texts, Documents):
        dumper = type(f"{kind.__name__}Dumper", (_ColumnDumper,), {"oid": kind.array})
        adapters.register_dumper(kind, dumper)
