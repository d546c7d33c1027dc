"""Databases that speak the protocol of PostgreSQL and cannot keep the promises of the store."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import AsyncConnection

from holdfast.errors import StoreError
from holdfast.store.postgres.rows import Row

_REASONS: Mapping[str, str] = {
    "CockroachDB": "it has no LISTEN and NOTIFY, so that workers would not learn of new jobs, and"
    " it locks rows for SKIP LOCKED in another way, so that they would wait for each other",
    "-YB-": "it does not deliver NOTIFY between its nodes, and it implements SKIP LOCKED and"
    " advisory locks in another way, on which claims and migrations rely",
    "Redshift": "it has neither row locks nor NOTIFY",
}
"""Why a product is refused, by a part of its version."""
_NAMES: Mapping[str, str] = {"-YB-": "YugabyteDB"}


async def refuse_other_products(connection: AsyncConnection[Row]) -> None:
    """Raise StoreError for a server that only looks like PostgreSQL."""
    cursor = await connection.execute(b"SELECT version()")
    ((version,),) = await cursor.fetchall()
    for part, why in _REASONS.items():
        if part in str(version):
            name = _NAMES.get(part, part)
            raise StoreError(
                f"the server is {name} ({str(version)[:60]}), which holdfast cannot use: {why}."
                " Use PostgreSQL 14 or later, or Redis"
            )
