"""The verbs deleted_keys and adopt_keys: keys that outlive their jobs, for another store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.store.postgres.arrays import Moments, Texts
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import HeldKey, KeyPage


async def deleted_keys(state: StoreState, cursor: str | None, limit: int) -> KeyPage:
    """Return open keys of deleted jobs; see ``PortableStore.deleted_keys``."""
    scope, key = msgspec.json.decode(cursor, type=tuple[str, str]) if cursor else ("", "")
    params = {"scope": scope, "key": key, "now": state.now(), "limit": limit}
    keys = tuple(HeldKey(*row) for row in await state.run("deleted_keys", params))
    last = (keys[-1].scope, keys[-1].key) if len(keys) == limit else None
    return KeyPage(keys, last and msgspec.json.encode(last).decode())


async def adopt_keys(state: StoreState, keys: Sequence[HeldKey]) -> None:
    """Write keys of deleted jobs; see ``PortableStore.adopt_keys``."""
    await state.run(
        "adopt_keys",
        {
            "scope": Texts([held.scope for held in keys]),
            "key": Texts([held.key for held in keys]),
            "digest": Texts([held.digest for held in keys]),
            "job_id": Texts([held.job_id for held in keys]),
            "expires_at": Moments([held.expires_at for held in keys]),
        },
    )
