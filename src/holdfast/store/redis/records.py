"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import Record, RecordWrite


async def keep(session: RedisSession, writes: Sequence[RecordWrite]) -> list[int | None]:
    """Keep or drop records; see ``Store.keep``."""
    if not writes:
        return []
    rows = [[w.kind, w.key, w.data is None, -1 if w.version is None else w.version] for w in writes]
    answers = await session.call("keep", pack(rows), *(w.data or b"" for w in writes))
    return [None if answer < 0 else int(answer) for answer in answers]


async def records(session: RedisSession, kind: str, keys: Sequence[str]) -> list[Record | None]:
    """Return records by key; see ``Store.records``."""
    if not keys:
        return []
    found = await session.client.command("HMGET", session.keys.shared(f"record:{kind}"), *keys)
    return [
        _record(kind, key, packed) if packed is not None else None
        for key, packed in zip(keys, found, strict=True)
    ]


async def kinds(session: RedisSession) -> list[str]:
    """Return the kinds that have records; see ``Store.kinds``."""
    client, keys = session.client, session.keys
    known = await client.command("SMEMBERS", keys.shared("kept"))
    return sorted(
        [
            kind.decode()
            for kind in known
            if await client.command("EXISTS", keys.shared(f"record:{kind.decode()}"))
        ]
    )


async def browse(
    session: RedisSession, kind: str, prefix: str, after: str, limit: int, *, last: bool
) -> list[Record]:
    """List records; see ``Store.browse``."""
    found = await session.call("browse", kind, prefix, after, limit, "1" if last else "")
    return [
        _record(kind, key.decode(), packed)
        for key, packed in zip(found[::2], found[1::2], strict=True)
    ]


def _record(kind: str, key: str, packed: bytes) -> Record:
    version, _, data = packed.partition(b"|")
    return Record(kind, key, data, int(version))
