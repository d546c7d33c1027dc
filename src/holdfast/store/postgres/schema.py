"""The schema of a store: opened in a version this program can use, moved when asked to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from holdfast.errors import Fault, SchemaVersionError, ValidationError
from holdfast.store.capabilities import SchemaMove, SchemaStatus
from holdfast.store.postgres.base import Base
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.health import refuse_unreadable, refuse_unsafe
from holdfast.store.postgres.migrate import Migrator, known

_TITLES = {migration.version: migration.title for migration in known()}


class Upgrades(Base):
    """What is done before any verb, see ``VersionedStore``."""

    async def schema(self) -> SchemaStatus:
        async with self._migrator() as migrator:
            applied = await migrator.applied()
        return SchemaStatus(
            version=max(applied, default=0),
            applied=[_TITLES.get(version, f"{version:04d}") for version in sorted(applied)],
            pending=[title for version, title in _TITLES.items() if version not in applied],
        )

    async def migrate(self, to: int | None = None, *, lose: bool = False) -> SchemaMove:
        if to is not None and not 0 <= to <= max(_TITLES):
            rule = f"must be a version from 0 to {max(_TITLES)}, got {to}"
            raise ValidationError([Fault("to", "INVALID", rule)])
        async with self._migrator() as migrator:
            down = [] if to is None else await self._back(migrator, to, lose=lose)
            up = await migrator.up(to)
            if to is None:
                await migrator.check()
        return SchemaMove([_TITLES[version] for version in up], [_TITLES[v] for v in down])

    async def _back(self, migrator: Migrator, to: int, *, lose: bool) -> list[int]:
        applied = await migrator.applied()
        if max(applied, default=0) > max(_TITLES):
            raise SchemaVersionError(max(applied), max(_TITLES))
        lost = [m.loses for m in known() if m.version > to and m.version in applied and m.loses]
        if lost and not lose:
            told = f"going back to version {to} loses {' and '.join(reversed(lost))}"
            rule = f"{told}: say --lose-data (lose=True) if that is meant"
            raise ValidationError([Fault("to", "LOSES_DATA", rule)])
        return await migrator.down(to)

    async def _prepare(self) -> None:
        """Bring the schema up to date, or refuse it."""
        async with self._migrator() as migrator:
            if self.settings.migrate:
                await migrator.up()
            await migrator.check()

    @contextlib.asynccontextmanager
    async def _migrator(self) -> AsyncIterator[Migrator]:
        """A connection to a server that may be trusted, with as much time as it takes."""
        with translated():
            async with await self._database.connect() as connection:
                refuse_unreadable(connection)
                if self.settings.durability != "server":
                    await refuse_unsafe(connection)
                yield Migrator(connection, self.settings.schema)
