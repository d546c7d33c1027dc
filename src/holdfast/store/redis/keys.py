"""The verbs deleted_keys and adopt_keys: keys that outlive their jobs, for another store."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.damage import readable
from holdfast.store.redis import fields
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.redis.settings import dedupe_field
from holdfast.store.values import HeldKey, KeyPage


async def deleted_keys(session: RedisSession, cursor: str | None, limit: int) -> KeyPage:
    """Return open keys of deleted jobs; see ``PortableStore.deleted_keys``."""
    after = int(cursor or 0)
    looked_at, *found = await session.call("deleted_keys", after, limit)
    keys = tuple(readable(zip(found[::2], found[1::2], strict=True), _held))
    return KeyPage(keys, str(after + limit) if looked_at == limit else None)


def _held(item: tuple[bytes, bytes]) -> HeldKey:
    scope, _, key = item[0].decode().partition("\n")
    digest, expires, job_id = item[1].decode().split("|", 2)
    return HeldKey(scope, key, digest, fields.instant(int(expires)), job_id)


async def adopt_keys(session: RedisSession, keys: Sequence[HeldKey]) -> None:
    """Write keys of deleted jobs; see ``PortableStore.adopt_keys``."""
    rows: list[tuple[str, str, str]] = []
    for held in keys:
        expires = str(fields.micros(held.expires_at))
        packed = f"{held.digest}|{expires}|{held.job_id}"
        rows.append((dedupe_field(held.scope, held.key), packed, expires))
    await session.call("adopt_keys", pack(rows))
