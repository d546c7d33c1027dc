"""Moves a schema from one version to another, one process at a time.

A migration is a pair of files, ``NNNN_name.up.sql`` and ``.down.sql``. The up file starts with
``-- works with: N``, the oldest program that can still use the schema, and perhaps ``-- outside a
transaction``: each statement commits alone. The down file may start with ``-- loses: what``.
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

from holdfast.errors import (
    Fault,
    SchemaVersionError,
    StoreError,
    StoreUnavailableError,
    UnsafeStoreError,
    ValidationError,
)
from holdfast.store.capabilities import SchemaMove, SchemaStatus
from holdfast.store.postgres.engines import refuse_other_products
from holdfast.store.postgres.errors import message_of, translated
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.settings import PostgresSettings
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
_RESTORE_LOCK = b"SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast restore ' || %s, 0))"
LOCK_POLL = 0.05
"""Seconds between two attempts to take the lock. Waiting inside the server or a transaction holds
a snapshot, and an index that is built concurrently waits for that in turn."""
LOCK_WITHIN, LOCK_ATTEMPTS, LOCK_PAUSE = 1.0, 12, 1.5
"""A step that cannot lock a table within so many seconds gives up its place in the lock queue, so
that the transactions behind it go on, and starts over after a pause, at most so many times."""
TIMEOUTS = b"""
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN %s ELSE '0' END, %s) FROM pg_settings
WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout',
    'idle_in_transaction_session_timeout')
"""
"""The timeouts of a role are meant for other statements than these."""
_RIGHTS = (
    "to create its tables holdfast needs CREATE on the schema, or on the database if the schema"
    " does not exist, and to change them it must own them; a role without these rights uses"
    " migrate=false after another role has run holdfast migrate"
)


class Migration(msgspec.Struct, frozen=True):
    """One step, both ways."""

    version: int
    name: str
    up: str
    down: str
    works_with: int
    outside: bool = False
    """Not inside a transaction: a step that broke off half-way runs again from its start."""

    @property
    def title(self) -> str:
        """Its version and name."""
        return f"{self.version:04d}_{self.name}"

    @property
    def loses(self) -> str:
        """The data that reverting it deletes."""
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
        return await self._run(wanted, self._apply_all)

    async def down(self, to: int) -> list[int]:
        """Revert every migration above a version; return what was reverted."""
        unwanted = [m for m in reversed(self._migrations) if m.version > to]
        return await self._run(unwanted, self._revert_all)

    async def _run(self, steps: Sequence[Migration], direction: _Direction) -> list[int]:
        done: list[int] = []
        for outside, group in groupby(steps, key=lambda migration: migration.outside):
            done += await self._run_retrying(list(group), direction, outside=outside)
        return done

    async def _run_retrying(
        self, steps: Sequence[Migration], direction: _Direction, *, outside: bool
    ) -> list[int]:
        """Run some steps; start over from the first one when a table stays locked."""
        for _ in range(LOCK_ATTEMPTS):
            with contextlib.suppress(errors.LockNotAvailable), self._errors():
                async with self._locked(outside=outside):
                    return await direction(steps)
            await asyncio.sleep(LOCK_PAUSE)
        raise StoreUnavailableError(
            f"schema {self._schema!r} cannot be migrated now: other transactions keep its tables"
            " locked; end those that have been open for long, and try again"
        )

    async def _apply_all(self, steps: Sequence[Migration]) -> list[int]:
        await self._create_schema()
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

    async def _revert_all(self, steps: Sequence[Migration]) -> list[int]:
        applied = await self.applied()
        reverted = [step for step in steps if step.version in applied]
        for step in reverted:
            await self._apply(step, step.down)
            await self._connection.execute(
                SQL("DELETE FROM {}.migration WHERE version = %s").format(self._name),
                (step.version,),
            )
        return [step.version for step in reverted]

    @contextlib.asynccontextmanager
    async def _locked(self, *, outside: bool) -> AsyncIterator[None]:
        """Keep other migrators out; in one transaction unless the step runs outside of one."""
        if outside:
            while not await self._takes(_LOCK_SESSION):  # noqa: ASYNC110  # another process
                await asyncio.sleep(LOCK_POLL)
            try:
                await self._connection.execute(TIMEOUTS, ("0", False))
                yield
            finally:
                await self._connection.execute(_UNLOCK_SESSION, (self._schema,))
            return
        while True:
            async with self._connection.transaction():
                if await self._takes(_LOCK):
                    await self._connection.execute(TIMEOUTS, (f"{LOCK_WITHIN}s", True))
                    yield
                    return
            await asyncio.sleep(LOCK_POLL)

    async def _takes(self, lock: bytes) -> bool:
        cursor = await self._connection.execute(lock, (self._schema,))
        return await cursor.fetchone() == (True,)

    async def _create_schema(self) -> None:
        """Create the schema if it is missing; its owner need not own the database."""
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
        for part in _statements(text) if migration.outside else [text]:
            await self._connection.execute(part.encode())

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except errors.InsufficientPrivilege as error:
            raise StoreError(f"{message_of(error)}: {_RIGHTS}") from error
        except (errors.DuplicateTable, errors.DuplicateObject) as error:
            raise self._taken(error) from error
        except errors.RaiseException as error:  # a step reports why it cannot run
            raise StoreError(message_of(error)) from error

    def _taken(self, error: Exception) -> StoreError:
        return StoreError(
            f"schema {self._schema!r} contains objects of another program ({message_of(error)}):"
            " give holdfast a schema of its own with schema="
        )


_Direction = Callable[[Sequence[Migration]], Awaitable[list[int]]]


def _statements(text: str) -> Sequence[str]:
    """Split a text into statements: several sent at once would be one transaction."""
    return [part for part in _STATEMENT_END.split(text) if part.strip()]


async def schema(pool: Pool, settings: PostgresSettings) -> SchemaStatus:
    """Report the versions of the schema; see ``VersionedStore.schema``."""
    titles = _titles()
    async with _migrator(pool, settings) as migrator:
        applied = await migrator.applied()
    return SchemaStatus(
        version=max(applied, default=0),
        applied=[titles.get(version, f"{version:04d}") for version in sorted(applied)],
        pending=[title for version, title in titles.items() if version not in applied],
    )


async def migrate(
    pool: Pool, settings: PostgresSettings, to: int | None, *, lose: bool
) -> SchemaMove:
    """Move the schema to a version; see ``VersionedStore.migrate``."""
    titles = _titles()
    if to is not None and not 0 <= to <= max(titles):
        rule = f"must be a version from 0 to {max(titles)}, got {to}"
        raise ValidationError([Fault("to", "INVALID", rule)])
    async with _migrator(pool, settings) as migrator:
        down = [] if to is None else await _revert(migrator, to, lose=lose)
        up = await migrator.up(to)
        if to is None:
            await migrator.check()
    return SchemaMove([titles[version] for version in up], [titles[v] for v in down])


async def _revert(migrator: Migrator, to: int, *, lose: bool) -> list[int]:
    applied = await migrator.applied()
    if max(applied, default=0) > migrator.newest:
        raise SchemaVersionError(max(applied), migrator.newest)
    lost = [m.loses for m in known() if m.version > to and m.version in applied and m.loses]
    if lost and not lose:
        data = " and ".join(reversed(lost))
        rule = f"going back to version {to} loses {data}: pass --lose-data (lose=True)"
        raise ValidationError([Fault("to", "LOSES_DATA", rule)])
    return await migrator.down(to)


async def prepare(pool: Pool, settings: PostgresSettings) -> None:
    """Bring the schema up to date if settings allow it; refuse one that cannot be used."""
    async with _migrator(pool, settings) as migrator:
        if settings.migrate:
            await migrator.up()
        await migrator.check()


def _titles() -> dict[int, str]:
    return {migration.version: migration.title for migration in known()}


@contextlib.asynccontextmanager
async def _migrator(pool: Pool, settings: PostgresSettings) -> AsyncIterator[Migrator]:
    """Open a connection without timeouts to a server that is safe to use."""
    with translated():
        async with await pool.connect() as connection:
            await refuse_other_products(connection)
            _refuse_encoding(connection)
            if settings.durability != "server":
                await _refuse_unsafe(connection)
            yield Migrator(connection, settings.schema)


def _refuse_encoding(connection: AsyncConnection[Row]) -> None:
    """Refuse a database that cannot store every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"database {connection.info.dbname!r} cannot store every text, its encoding is"
            f" {encoding}: holdfast needs UTF8"
            " (CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0)"
        )


async def _refuse_unsafe(connection: AsyncConnection[Row]) -> None:
    """Refuse a server that can lose what it has acknowledged."""
    cursor = await connection.execute(
        b"SELECT name FROM pg_settings"
        b" WHERE name IN ('fsync', 'synchronous_commit') AND setting = 'off' ORDER BY name"
    )
    if found := [name for (name,) in await cursor.fetchall()]:
        raise UnsafeStoreError(
            f"{' and '.join(found)} is off: a crash of the server could lose accepted jobs."
            " Turn it on, or accept that with ?durability=server"
        )


async def adopt_restored(connection: AsyncConnection[Row], schema: str) -> None:
    """Make restored jobs and events this server's own, unless another process is doing so."""
    async with connection.transaction():
        cursor = await connection.execute(_RESTORE_LOCK, (schema,))
        if await cursor.fetchone() == (True,):
            await connection.execute(TIMEOUTS, ("0", True))
            await connection.execute(statement("adopt_restored", schema).sent)
