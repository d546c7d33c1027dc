"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.damage import readable
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import Record, RecordWrite

VERSION_DIGITS = 15


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
        None if packed is None else _record(kind, key, packed)
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
    found: list[Record] = []
    place: str | bytes = after
    while len(found) < limit:
        left = limit - len(found)
        page = await session.call("browse", kind, prefix, place, left, "1" if last else "")
        pairs = zip(page[::2], page[1::2], strict=True)
        found += readable(pairs, lambda pair: _record(kind, pair[0].decode(), pair[1]))
        if len(page) < 2 * left:
            break
        place = page[-2]  # a key that is no text is left out, and the page goes on behind it
    return found


def _record(kind: str, key: str, packed: bytes) -> Record:
    """Read a record; one that another program damaged has all its bytes, and no version."""
    version, divider, data = packed.partition(b"|")
    if not divider or not version.isdigit():
        return Record(kind, key, packed, 0)
    return Record(kind, key, data, int(version[:VERSION_DIGITS]))
