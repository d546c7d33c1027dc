"""Where jobs are kept: one contract, several engines, chosen by URL.

``Store`` is documented but may change in minor releases until 1.0.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.errors import StoreError, UnknownStoreError
from holdfast.model.measures import Measure, Reading, Stats, Tally
from holdfast.runtime.clock import Clock
from holdfast.store.capabilities import (
    Capabilities,
    PortableStore,
    PromptStore,
    SchemaMove,
    SchemaStatus,
    TransactionalStore,
    VersionedStore,
)
from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.values import (
    Added,
    AddStatus,
    Change,
    Claim,
    Dependent,
    EventKind,
    EventPage,
    FailurePage,
    FailureSearch,
    Fence,
    Finding,
    HeldKey,
    JobEvent,
    JobExport,
    JobNote,
    KeyPage,
    Level,
    LimitRule,
    LimitState,
    NamedLock,
    Order,
    Page,
    Promoted,
    QueueInfo,
    Record,
    RecordWrite,
    Renewal,
    Search,
    Swapped,
)

DEFAULT_URL = "sqlite:///holdfast.db"


def open_store(url: str = DEFAULT_URL, *, clock: Clock | None = None) -> Store:
    """Return the store of a URL, not yet started.

    ``memory://``, ``sqlite:///path``, ``postgresql://...``, ``redis://...``. An unknown
    scheme raises ``UnknownStoreError``, a missing driver ``MissingExtraError`` with the command
    that installs it, and a malformed URL ``StoreError``.
    """
    try:
        return _open(url, urlsplit(url).scheme, clock)
    except ValueError:  # its text and the URL are not shown: they may contain a password
        raise StoreError(
            "the URL of the store is malformed: check its brackets, port, numbers and encoding"
        ) from None


def _open(url: str, scheme: str, clock: Clock | None) -> Store:
    match scheme:
        case "memory":
            return MemoryStore(clock)
        case "sqlite":
            from holdfast.store.sqlite import SQLiteStore

            return SQLiteStore.from_url(url, clock=clock)
        case "postgresql" | "postgres":
            from holdfast.store.postgres import PostgresStore

            return PostgresStore.from_url(url, clock=clock)
        case "redis" | "rediss" | "valkey" | "valkeys":
            from holdfast.store.redis import RedisStore

            return RedisStore.from_url(url, clock=clock)
        case _:
            raise UnknownStoreError(
                f"no store for {scheme or url!r}: use memory://, sqlite:///path,"
                " postgresql://... or redis://..."
            )


__all__ = [
    "DEFAULT_URL",
    "AddStatus",
    "Added",
    "Capabilities",
    "Change",
    "Claim",
    "Dependent",
    "EventKind",
    "EventPage",
    "FailurePage",
    "FailureSearch",
    "Fence",
    "Finding",
    "HeldKey",
    "JobEvent",
    "JobExport",
    "JobNote",
    "KeyPage",
    "Level",
    "LimitRule",
    "LimitState",
    "Measure",
    "MemoryStore",
    "NamedLock",
    "Order",
    "Page",
    "PortableStore",
    "Promoted",
    "PromptStore",
    "QueueInfo",
    "Reading",
    "Record",
    "RecordWrite",
    "Renewal",
    "SchemaMove",
    "SchemaStatus",
    "Search",
    "Stats",
    "Store",
    "Swapped",
    "Tally",
    "TransactionalStore",
    "VersionedStore",
    "open_store",
]
