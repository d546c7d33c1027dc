"""The PostgreSQL store; needs the extra ``holdfast-queue[postgres]``."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    from holdfast.store.postgres.settings import PostgresSettings
    from holdfast.store.postgres.store import PostgresStore
except ModuleNotFoundError as error:
    if error.name not in ("psycopg", "psycopg_pool"):
        raise
    raise MissingExtraError("postgres", error.name) from None

__all__ = ["PostgresSettings", "PostgresStore"]
