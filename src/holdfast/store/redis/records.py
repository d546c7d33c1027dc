"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.store.redis.params import pack
from holdfast.store.values import Record, RecordWrite

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore


async def keep(store: RedisStore, drafts: Sequence[RecordWrite]) -> list[int | None]:
    """Keep or drop records; see ``Store.keep``."""
    if not drafts:
        return []
    rows = [[d.kind, d.key, d.data is None, -1 if d.version is None else d.version] for d in drafts]
    answers = await store.call("keep", pack(rows), *(d.data or b"" for d in drafts))
    return [None if answer < 0 else int(answer) for answer in answers]


async def records(store: RedisStore, kind: str, keys: Sequence[str]) -> list[Record | None]:
    """Return records by key; see ``Store.records``."""
    if not keys:
        return []
    found = await store.client.command("HMGET", store.keys.shared(f"record:{kind}"), *keys)
    return [
        _record(kind, key, packed) if packed is not None else None
        for key, packed in zip(keys, found, strict=True)
    ]


async def kinds(store: RedisStore) -> list[str]:
    """Return the kinds there are; see ``PortableStore.kinds``."""
    known = await store.client.command("SMEMBERS", store.keys.shared("kept"))
    return sorted(
        [
            kind.decode()
            for kind in known
            if await store.client.command("EXISTS", store.keys.shared(f"record:{kind.decode()}"))
        ]
    )


async def browse(
    store: RedisStore, kind: str, prefix: str, after: str, limit: int, *, last: bool
) -> list[Record]:
    """List records; see ``Store.browse``."""
    found = await store.call("browse", kind, prefix, after, limit, "1" if last else "")
    return [
        _record(kind, key.decode(), packed)
        for key, packed in zip(found[::2], found[1::2], strict=True)
    ]


def _record(kind: str, key: str, packed: bytes) -> Record:
    version, _, data = packed.partition(b"|")
    return Record(kind, key, data, int(version))
