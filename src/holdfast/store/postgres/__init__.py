"""The PostgreSQL store; needs the extra ``holdfast[postgres]``."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    import psycopg
    import psycopg_pool
except ModuleNotFoundError as error:
    raise MissingExtraError("postgres", error.name or "psycopg") from None

from holdfast.store.postgres.settings import Settings
from holdfast.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "Settings"]
