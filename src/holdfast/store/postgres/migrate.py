"""Bringing a schema from one version to another, one process at a time.

A migration is a pair of files, ``NNNN_name.up.sql`` and ``.down.sql``. The first line of one up,
``-- works with: N``, names the oldest program that can still use the schema; a second one, ``--
outside a transaction``, lets each statement commit alone. One down may say ``-- loses: what``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import groupby

import msgspec
from psycopg import AsyncConnection, errors
from psycopg.sql import SQL, Identifier

from holdfast.errors import SchemaVersionError, StoreError, StoreUnavailableError
from holdfast.store.postgres.errors import words
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.statements import statement

_FILE = re.compile(r"(\d{4})_(\w+)\.up\.sql", re.ASCII)
_WORKS_WITH = re.compile(r"-- works with: (\d+)\n")
_OUTSIDE = re.compile(r"-- works with: \d+\n-- outside a transaction\n")
_LOSES = re.compile(r"-- loses: (.+)\n")
_STATEMENT_END = re.compile(r";\s*$", re.MULTILINE)
_KEY = "(hashtextextended('holdfast migrate ' || %s, 0))"
_LOCK = f"SELECT pg_try_advisory_xact_lock{_KEY}".encode()
_LOCK_SESSION = f"SELECT pg_try_advisory_lock{_KEY}".encode()
_UNLOCK_SESSION = f"SELECT pg_advisory_unlock{_KEY}".encode()
LOOK_AGAIN = 0.05
"""Seconds between two looks at a lock. Whoever waits inside the server or a transaction holds a
snapshot, and an index that is built concurrently waits for that in turn."""
LOCK_WITHIN, LOCK_TRIES, LOCK_PAUSE = 1.0, 12, 1.5
"""A step that cannot lock a table within so many seconds lets those go who queue behind it, and
begins again, so many times, after a pause."""
LIMITS = b"""
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN %s ELSE '0' END, %s) FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout',
    'idle_in_transaction_session_timeout')
"""
"""A role's own limits are meant for other statements than these."""
_MAY_NOT = (
    "to create its tables holdfast needs CREATE on the schema, or on the database while there is"
    " no such schema, and to change them it must own them; a role that may not uses migrate=false"
    " once another one has run holdfast migrate"
)


class Migration(msgspec.Struct, frozen=True):
    """One step, both ways."""

    version: int
    name: str
    up: str
    down: str
    works_with: int
    outside: bool = False
    """Not inside a transaction: begun again when it broke off half-way, which it must bear."""

    @property
    def title(self) -> str:
        """Its version and name, as people call it."""
        return f"{self.version:04d}_{self.name}"

    @property
    def loses(self) -> str:
        """What is lost with it when it is taken back."""
        match = _LOSES.match(self.down)
        return match[1] if match else ""


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
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            return {}
        except errors.UndefinedColumn as error:
            raise self._taken(error) from error
        return dict(await cursor.fetchall())

    async def check(self) -> None:
        """Refuse a schema that this program cannot use."""
        applied = await self.applied()
        if max(applied.values(), default=0) > self.newest:
            raise SchemaVersionError(max(applied), self.newest)
        missing = [m for m in self._migrations if m.version not in applied]
        if missing and not applied:
            raise StoreError(f"there is no store in schema {self._schema!r}: run holdfast migrate")
        if missing:
            raise StoreError(
                f"schema {self._schema!r} lacks migration {missing[0].title}: run holdfast migrate"
            )

    async def up(self, to: int | None = None) -> list[int]:
        """Apply what is missing, up to a version; return what was applied."""
        wanted = [m for m in self._migrations if to is None or m.version <= to]
        applied = await self.applied()
        if all(m.version in applied for m in wanted):
            return []
        return await self._go(wanted, self._forward)

    async def down(self, to: int) -> list[int]:
        """Take back every migration above a version; return what was taken back."""
        unwanted = [m for m in reversed(self._migrations) if m.version > to]
        return await self._go(unwanted, self._back)

    async def _go(self, steps: Sequence[Migration], way: _Way) -> list[int]:
        done: list[int] = []
        for outside, group in groupby(steps, key=lambda migration: migration.outside):
            done += await self._insist(list(group), way, outside=outside)
        return done

    async def _insist(self, steps: Sequence[Migration], way: _Way, *, outside: bool) -> list[int]:
        """Go some steps; from their first one again when a table stays locked."""
        for _ in range(LOCK_TRIES):
            with contextlib.suppress(errors.LockNotAvailable), self._in_words():
                async with self._alone(outside=outside):
                    return await way(steps)
            await asyncio.sleep(LOCK_PAUSE)
        raise StoreUnavailableError(
            f"schema {self._schema!r} cannot be migrated now: others keep its tables locked;"
            " end transactions that are open for long, and try again"
        )

    async def _forward(self, steps: Sequence[Migration]) -> list[int]:
        await self._prepare()
        applied = await self.applied()
        missing = [step for step in steps if step.version not in applied]
        for step in missing:
            await self._apply(step, step.up)
            await self._connection.execute(
                SQL("INSERT INTO {}.migration (version, name, works_with) {}").format(
                    self._name, SQL("VALUES (%s, %s, %s)")
                ),
                (step.version, step.name, step.works_with),
            )
        return [step.version for step in missing]

    async def _back(self, steps: Sequence[Migration]) -> list[int]:
        applied = await self.applied()
        there = [step for step in steps if step.version in applied]
        for step in there:
            await self._apply(step, step.down)
            await self._connection.execute(
                SQL("DELETE FROM {}.migration WHERE version = %s").format(self._name),
                (step.version,),
            )
        return [step.version for step in there]

    @contextlib.asynccontextmanager
    async def _alone(self, *, outside: bool) -> AsyncIterator[None]:
        """Keep every other migrator out; in one transaction unless that must not be."""
        if outside:
            while not await self._gets(_LOCK_SESSION):  # noqa: ASYNC110  # another process
                await asyncio.sleep(LOOK_AGAIN)
            try:
                await self._connection.execute(LIMITS, ("0", False))
                yield
            finally:
                await self._connection.execute(_UNLOCK_SESSION, (self._schema,))
            return
        while True:
            async with self._connection.transaction():
                if await self._gets(_LOCK):
                    await self._connection.execute(LIMITS, (f"{LOCK_WITHIN}s", True))
                    yield
                    return
            await asyncio.sleep(LOOK_AGAIN)

    async def _gets(self, lock: bytes) -> bool:
        cursor = await self._connection.execute(lock, (self._schema,))
        return await cursor.fetchone() == (True,)

    async def _prepare(self) -> None:
        """Create what is not there; whoever owns the schema need not own the database."""
        cursor = await self._connection.execute(
            b"SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)
        )
        if await cursor.fetchone() is None:
            await self._connection.execute(SQL("CREATE SCHEMA {}").format(self._name))
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

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except errors.InsufficientPrivilege as error:
            raise StoreError(f"{words(error)}: {_MAY_NOT}") from error
        except (errors.DuplicateTable, errors.DuplicateObject) as error:
            raise self._taken(error) from error
        except errors.RaiseException as error:  # a step says why it cannot be gone
            raise StoreError(words(error)) from error

    def _taken(self, error: Exception) -> StoreError:
        return StoreError(
            f"schema {self._schema!r} holds something that is not holdfast's ({words(error)}):"
            " give holdfast a schema of its own with schema="
        )


_Way = Callable[[Sequence[Migration]], Awaitable[list[int]]]


def _parts(text: str) -> Sequence[str]:
    """Return statements one by one: several sent at once would be a transaction."""
    return [part for part in _STATEMENT_END.split(text) if part.strip()]


ALONE = b"SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast restore ' || %s, 0))"


async def take_in(connection: AsyncConnection[Row], schema: str) -> None:
    """Make its jobs and events this server's own, unless somebody is doing so."""
    async with connection.transaction():
        cursor = await connection.execute(ALONE, (schema,))
        if await cursor.fetchone() == (True,):
            await connection.execute(LIMITS, ("0", True))
            await connection.execute(statement("take_in", schema).sent)
