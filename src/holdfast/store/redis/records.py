"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.store.damage import readable
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
        next(readable([(key, packed)], partial(_record, kind)), None)
        if packed is not None
        else None
        for key, packed in zip(keys, found, strict=True)
    ]


async def kinds(session: RedisSession) -> list[str]:
    """Return the kinds that have records; see ``Store.kinds``."""
    client, keys = session.client, session.keys
    known = readable(await client.command("SMEMBERS", keys.shared("kept")), bytes.decode)
    return sorted(
        [kind for kind in known if await client.command("EXISTS", keys.shared(f"record:{kind}"))]
    )


async def browse(
    session: RedisSession, kind: str, prefix: str, after: str, limit: int, *, last: bool
) -> list[Record]:
    """List records; see ``Store.browse``."""
    found = await session.call("browse", kind, prefix, after, limit, "1" if last else "")
    pairs = ((key, packed) for key, packed in zip(found[::2], found[1::2], strict=True))
    return list(readable(pairs, lambda pair: _record(kind, (pair[0].decode(), pair[1]))))


def _record(kind: str, pair: tuple[str, bytes]) -> Record:
    version, _, data = pair[1].partition(b"|")
    return Record(kind, pair[0], data, int(version))
