"""The store in one file: the default for real work on one machine."""

from holdfast.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
