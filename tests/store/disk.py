"""A disk under SQLite that records writes and can fail.

The store speaks to Python's own sqlite3, which knows no such disks. ``Disk.connect`` gives it a
connection of another build of SQLite, with the same statements and settings, whose files lie on
this disk. ``Disk.image`` then tells what a machine would find that lost power at any moment.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import apsw

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

SECTOR = 512
"""What a disk writes whole or not at all."""

NAME = "holdfast-disk"
FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
_KEPT = (".db", ".db-wal")
_CODES = {apsw.FullError: sqlite3.SQLITE_FULL, apsw.IOError: sqlite3.SQLITE_IOERR}
"""What SQLite reports when a disk raised this: apsw raises the bare exception."""


@dataclass(frozen=True)
class Event:
    """Something that reached the disk."""

    kind: str
    file: str = ""
    offset: int = 0
    data: bytes = b""


@dataclass
class Fault:
    """From the call with this number on, calls of these kinds fail, ``times`` of them."""

    error: type[apsw.Error]
    at: int
    kinds: frozenset[str]
    times: int = 1_000_000
    seen: int = 0
    struck: int = 0

    def strike(self, kind: str) -> None:
        if kind not in self.kinds:
            return
        self.seen += 1
        if self.at <= self.seen < self.at + self.times:
            self.struck += 1
            raise self.error(f"the disk fails at its call {self.seen} ({kind})")


class Disk(apsw.VFS):
    """Forwards everything to the real disk, and records it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.fault: Fault | None = None
        super().__init__(NAME, "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802  # SQLite's name
        return _File(self, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802
        self.note("delete", name)
        super().xDelete(name, syncdir)

    def note(self, kind: str, file: str, offset: int = 0, data: bytes = b"") -> None:
        """Record a call before it happens, unless it fails."""
        if self.fault is not None:
            self.fault.strike(kind)
        if file.endswith(_KEPT) and kind != "read":
            self.events.append(Event(kind, Path(file).name, offset, data))

    def mark(self, what: str) -> None:
        """Record that something was acknowledged to a caller."""
        self.events.append(Event("mark", what))

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Use this disk for every connection that is opened meanwhile."""
        with mock.patch.object(sqlite3, "connect", _Connection):
            yield


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.note("read", self._name)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.note("write", self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.note("sync", self._name)
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.note("truncate", self._name, size)
        super().xTruncate(size)


class _Rows:
    """What a statement returned; read at once, so that no statement stays open."""

    def __init__(self, rows: Iterable[tuple[Any, ...]], changed: int = 0) -> None:
        self._rows = iter(list(rows))
        self.rowcount = changed

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


class _Connection:
    """As much of ``sqlite3.Connection`` as the store uses."""

    def __init__(self, path: Path, **_: object) -> None:
        with _as_sqlite3():
            self._connection = apsw.Connection(str(path), vfs=NAME, flags=FLAGS)

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> _Rows:
        with _as_sqlite3():
            before = self._connection.total_changes()
            found = list(self._connection.execute(sql, values))
            return _Rows(found, self._connection.total_changes() - before)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> _Rows:
        with _as_sqlite3():
            before = self._connection.total_changes()
            found = list(self._connection.executemany(sql, rows))
            return _Rows(found, self._connection.total_changes() - before)

    def close(self) -> None:
        with _as_sqlite3():
            self._connection.close()


@contextmanager
def _as_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        seen = sqlite3.OperationalError(str(error))
        seen.sqlite_errorcode = getattr(error, "extendedresult", 0) or _CODES[type(error)]
        raise seen from error


@dataclass
class _Content:
    """One file: its synced contents, and every version of its sectors since."""

    durable: bytearray = field(default_factory=bytearray)
    newer: dict[int, list[bytes]] = field(default_factory=dict)

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        for number in range(offset // SECTOR, -(-end // SECTOR)):
            start = number * SECTOR
            sector = bytearray(self._newest(number))
            first, last = max(offset, start), min(end, start + SECTOR)
            sector.extend(bytes(max(0, last - start - len(sector))))
            sector[first - start : last - start] = data[first - offset : last - offset]
            self.newer.setdefault(number, []).append(bytes(sector))

    def sync(self) -> None:
        for number, versions in self.newer.items():
            self._put(self.durable, number, versions[-1])
        self.newer.clear()

    def truncate(self, size: int) -> None:
        """Counted as done at once: only a file that was copied and synced is ever cut."""
        self.sync()
        del self.durable[size:]

    def after_power_loss(self, randomness: random.Random | None) -> bytes:
        """Every sector in any version it had; without chance, nothing that was not synced."""
        found = bytearray(self.durable)
        for number, versions in self.newer.items() if randomness else ():
            kept = randomness.randint(0, len(versions)) if randomness else 0
            if kept:
                self._put(found, number, versions[kept - 1])
        return bytes(found)

    def _newest(self, number: int) -> bytes:
        versions = self.newer.get(number)
        return versions[-1] if versions else bytes(self.durable[number * SECTOR :][:SECTOR])

    @staticmethod
    def _put(content: bytearray, number: int, sector: bytes) -> None:
        start = number * SECTOR
        content.extend(bytes(max(0, start + len(sector) - len(content))))
        content[start : start + len(sector)] = sector


class Past:
    """The disk at one moment of its record, with what a power cut would leave."""

    def __init__(self) -> None:
        self._files: dict[str, _Content] = {}

    def happen(self, event: Event) -> None:
        """Move on by one event."""
        content = self._files.setdefault(event.file, _Content()) if event.kind != "mark" else None
        match event.kind, content:
            case "write", _Content():
                content.write(event.offset, event.data)
            case "sync", _Content():
                content.sync()
            case "truncate", _Content():
                content.truncate(event.offset)
            case "delete", _:
                del self._files[event.file]

    def leave(self, folder: Path, randomness: random.Random | None) -> None:
        """Write the files as they are found when the power is back."""
        for old in folder.iterdir():
            old.unlink()
        for name, content in self._files.items():
            folder.joinpath(name).write_bytes(content.after_power_loss(randomness))
