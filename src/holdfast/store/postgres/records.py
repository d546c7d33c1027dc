"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.cursors import BEYOND
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.connection import PostgresSession
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Record, RecordWrite


async def keep(state: StoreState, writes: Sequence[RecordWrite]) -> list[int | None]:
    """Write or remove records; see ``Store.keep``."""

    async def write_all(session: PostgresSession) -> list[int | None]:
        return [await _keep(session, write) for write in writes]

    return await state.pool.atomically(write_all) if writes else []


async def records(state: StoreState, kind: str, keys: Sequence[str]) -> list[Record | None]:
    """Return records by key; see ``Store.records``."""
    rows = await state.run("records", {"kind": kind, "key": Texts(keys)})
    found = {row[1]: Record(*row) for row in rows}
    return [found.get(key) for key in keys]


async def kinds(state: StoreState) -> list[str]:
    """Return the kinds of which there are records."""
    return [kind for (kind,) in await state.run("kinds", {})]


async def browse(
    state: StoreState, kind: str, prefix: str, after: str, limit: int, *, last: bool
) -> list[Record]:
    """Return records of one kind in the order of their keys; see ``Store.browse``."""
    begin = after or (BEYOND if last else "")
    params = {"kind": kind, "prefix": prefix, "after": begin, "limit": limit}
    rows = await state.run("browse_back" if last else "browse", params)
    return [Record(*row) for row in rows]


async def _keep(session: PostgresSession, write: RecordWrite) -> int | None:
    place = {"kind": write.kind, "key": write.key, "version": write.version}
    if write.data is not None:
        rows = await session.run("keep", {**place, "data": write.data})
        return int(rows[0][0]) if rows else None
    removed = await session.run("drop", place)
    if removed or (not write.version and await _is_free(session, write)):
        return 0
    return None


async def _is_free(session: PostgresSession, write: RecordWrite) -> bool:
    return not await session.run("records", {"kind": write.kind, "key": Texts([write.key])})
