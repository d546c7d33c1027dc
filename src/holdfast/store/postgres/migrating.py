"""Bringing a schema from one version to another, one process at a time.

A migration is a pair of files, ``NNNN_name.up.sql`` and ``.down.sql``. Its first line,
``-- works with: N``, says the oldest program version that can still use the schema: as long
as a roll-out keeps to that, old and new workers run side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from holdfast.errors import SchemaVersionError, StoreError
from holdfast.store.postgres.rows import Row

_FILE = re.compile(r"(\d{4})_(\w+)\.up\.sql", re.ASCII)
_WORKS_WITH = re.compile(r"-- works with: (\d+)\n")
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('holdfast migrate ' || %s, 0))"


class Migration(msgspec.Struct, frozen=True):
    """One step, both ways."""

    version: int
    name: str
    up: str
    down: str
    works_with: int


def known(folder: Traversable | None = None) -> list[Migration]:
    """Return every migration of this program, oldest first."""
    folder = folder or resources.files("holdfast.store.postgres") / "migrations"
    return sorted(_read(folder), key=lambda migration: migration.version)


def _read(folder: Traversable) -> Iterator[Migration]:
    for file in folder.iterdir():
        if match := _FILE.fullmatch(file.name):
            up = file.read_text("utf-8")
            down = folder / f"{match[1]}_{match[2]}.down.sql"
            works_with = _WORKS_WITH.match(up)
            if works_with is None:
                raise StoreError(f"{file.name} must begin with '-- works with: N'")
            yield Migration(
                int(match[1]), match[2], up, down.read_text("utf-8"), int(works_with[1])
            )


class Migrator:
    """Moves one schema through the known migrations."""

    def __init__(
        self,
        connection: AsyncConnection[Row],
        schema: str,
        migrations: list[Migration] | None = None,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._name = Identifier(schema)
        self._migrations = known() if migrations is None else migrations

    @property
    def newest(self) -> int:
        """The version this program was written for."""
        return max((migration.version for migration in self._migrations), default=0)

    async def applied(self) -> dict[int, int]:
        """Return the versions the schema has, each with the oldest program it works with."""
        try:
            cursor = await self._connection.execute(
                SQL("SELECT version, works_with FROM {}.migration").format(self._name)
            )
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return {}
        return dict(await cursor.fetchall())

    async def check(self) -> None:
        """Refuse a schema that this program cannot use."""
        applied = await self.applied()
        needs = max(applied.values(), default=0)
        if needs > self.newest:
            raise SchemaVersionError(max(applied), self.newest)
        missing = [m for m in self._migrations if m.version not in applied]
        if missing:
            raise StoreError(
                f"schema {self._schema!r} lacks migration"
                f" {missing[0].version:04d}_{missing[0].name}: run holdfast migrate"
            )

    async def up(self, to: int | None = None) -> list[int]:
        """Apply what is missing, up to a version; return what was applied."""
        target = self.newest if to is None else to
        applied = await self.applied()
        if all(m.version in applied for m in self._migrations if m.version <= target):
            return []
        async with self._connection.transaction():
            await self._lock()
            await self._prepare()
            applied = await self.applied()
            todo = [m for m in self._migrations if m.version <= target and m.version not in applied]
            for migration in todo:
                await self._apply(migration.up)
                await self._connection.execute(
                    SQL(
                        "INSERT INTO {}.migration (version, name, works_with) VALUES (%s, %s, %s)"
                    ).format(self._name),
                    (migration.version, migration.name, migration.works_with),
                )
        return [migration.version for migration in todo]

    async def down(self, to: int) -> list[int]:
        """Take back every migration above a version; return what was taken back."""
        async with self._connection.transaction():
            await self._lock()
            applied = await self.applied()
            todo = [m for m in reversed(self._migrations) if m.version > to]
            todo = [m for m in todo if m.version in applied]
            for migration in todo:
                await self._apply(migration.down)
                await self._connection.execute(
                    SQL("DELETE FROM {}.migration WHERE version = %s").format(self._name),
                    (migration.version,),
                )
        return [migration.version for migration in todo]

    async def _lock(self) -> None:
        await self._connection.execute(_LOCK, (self._schema,))

    async def _prepare(self) -> None:
        await self._connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(self._name))
        await self._connection.execute(
            SQL(
                "CREATE TABLE IF NOT EXISTS {}.migration ("
                "version integer PRIMARY KEY, name text NOT NULL, works_with integer NOT NULL,"
                " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(self._name)
        )

    async def _apply(self, text: str) -> None:
        await self._connection.execute(text.replace("{schema}", self._schema).encode())
