"""Bringing a schema from one version to another, one process at a time.

A migration is a pair of files, ``NNNN_name.up.sql`` and ``.down.sql``. Its first line,
``-- works with: N``, names the oldest program that can still use the schema. With a second line
``-- outside a transaction`` each statement commits alone (``CREATE INDEX CONCURRENTLY``).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import groupby

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from holdfast.errors import SchemaVersionError, StoreError
from holdfast.store.postgres.rows import Row

_FILE = re.compile(r"(\d{4})_(\w+)\.up\.sql", re.ASCII)
_WORKS_WITH = re.compile(r"-- works with: (\d+)\n")
_OUTSIDE = re.compile(r"-- works with: \d+\n-- outside a transaction\n")
_STATEMENT_END = re.compile(r";\s*$", re.MULTILINE)
_KEY = "(hashtextextended('holdfast migrate ' || %s, 0))"
_LOCK = f"SELECT pg_try_advisory_xact_lock{_KEY}".encode()
_LOCK_SESSION = f"SELECT pg_try_advisory_lock{_KEY}".encode()
_UNLOCK_SESSION = f"SELECT pg_advisory_unlock{_KEY}".encode()
LOOK_AGAIN = 0.05
"""Seconds between two looks at a lock. Whoever waits inside the server or a transaction holds a
snapshot, and an index that is built concurrently waits for that in turn."""


class Migration(msgspec.Struct, frozen=True):
    """One step, both ways."""

    version: int
    name: str
    up: str
    down: str
    works_with: int
    outside: bool = False
    """Not inside a transaction: begun again when it broke off half-way, which it must bear."""


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
                int(match[1]),
                match[2],
                up,
                down.read_text("utf-8"),
                int(works_with[1]),
                _OUTSIDE.match(up) is not None,
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
        done: list[int] = []
        wanted = [m for m in self._migrations if m.version <= target]
        for outside, steps in groupby(wanted, key=lambda migration: migration.outside):
            async with self._alone(outside=outside):
                await self._prepare()
                applied = await self.applied()
                for migration in [step for step in steps if step.version not in applied]:
                    await self._apply(migration, migration.up)
                    await self._connection.execute(
                        SQL("INSERT INTO {}.migration (version, name, works_with) {}").format(
                            self._name, SQL("VALUES (%s, %s, %s)")
                        ),
                        (migration.version, migration.name, migration.works_with),
                    )
                    done.append(migration.version)
        return done

    async def down(self, to: int) -> list[int]:
        """Take back every migration above a version; return what was taken back."""
        done: list[int] = []
        unwanted = [m for m in reversed(self._migrations) if m.version > to]
        for outside, steps in groupby(unwanted, key=lambda migration: migration.outside):
            async with self._alone(outside=outside):
                applied = await self.applied()
                for migration in [step for step in steps if step.version in applied]:
                    await self._apply(migration, migration.down)
                    await self._connection.execute(
                        SQL("DELETE FROM {}.migration WHERE version = %s").format(self._name),
                        (migration.version,),
                    )
                    done.append(migration.version)
        return done

    @contextlib.asynccontextmanager
    async def _alone(self, *, outside: bool) -> AsyncIterator[None]:
        """Keep every other migrator out; in one transaction unless that must not be."""
        if outside:
            while not await self._gets(_LOCK_SESSION):  # noqa: ASYNC110  # another process
                await asyncio.sleep(LOOK_AGAIN)
            try:
                yield
            finally:
                await self._connection.execute(_UNLOCK_SESSION, (self._schema,))
            return
        while True:
            async with self._connection.transaction():
                if await self._gets(_LOCK):
                    yield
                    return
            await asyncio.sleep(LOOK_AGAIN)

    async def _gets(self, lock: bytes) -> bool:
        cursor = await self._connection.execute(lock, (self._schema,))
        return await cursor.fetchone() == (True,)

    async def _prepare(self) -> None:
        await self._connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(self._name))
        await self._connection.execute(
            SQL(
                "CREATE TABLE IF NOT EXISTS {}.migration ("
                "version integer PRIMARY KEY, name text NOT NULL, works_with integer NOT NULL,"
                " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(self._name)
        )

    async def _apply(self, migration: Migration, text: str) -> None:
        text = text.replace("{schema}", f'"{self._schema}"')
        for part in _parts(text) if migration.outside else [text]:
            await self._connection.execute(part.encode())


def _parts(text: str) -> Sequence[str]:
    """Return statements one by one: several sent at once would be a transaction."""
    return [part for part in _STATEMENT_END.split(text) if part.strip()]
