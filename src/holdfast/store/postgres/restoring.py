"""A schema that was restored on a server other than the one it was written on."""

from __future__ import annotations

from psycopg import AsyncConnection

from holdfast.store.postgres.migrating import LIMITS
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.sql import statement

ALONE = b"SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast restore ' || %s, 0))"


async def take_in(connection: AsyncConnection[Row], schema: str) -> None:
    """Make its jobs and events this server's own, unless somebody is doing so."""
    async with connection.transaction():
        cursor = await connection.execute(ALONE, (schema,))
        if await cursor.fetchone() == (True,):
            await connection.execute(LIMITS, ("0", True))
            await connection.execute(statement("take_in", schema).sent)
