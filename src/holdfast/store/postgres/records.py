"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.cursors import BEYOND
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.base import Base
from holdfast.store.postgres.connection import PostgresSession
from holdfast.store.values import Record, RecordWrite


class Records(Base):
    """The part of the store that keeps records."""

    async def keep(self, drafts: Sequence[RecordWrite]) -> list[int | None]:
        async def write(session: PostgresSession) -> list[int | None]:
            return [await _keep(session, draft) for draft in drafts]

        return await self._database.atomically(write) if drafts else []

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        rows = await self._run("records", {"kind": kind, "key": Texts(keys)})
        found = {row[1]: Record(*row) for row in rows}
        return [found.get(key) for key in keys]

    async def kinds(self) -> list[str]:
        return [kind for (kind,) in await self._run("kinds", {})]

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        begin = after or (BEYOND if last else "")
        params = {"kind": kind, "prefix": prefix, "after": begin, "most": limit}
        rows = await self._run("browse_back" if last else "browse", params)
        return [Record(*row) for row in rows]


async def _keep(session: PostgresSession, draft: RecordWrite) -> int | None:
    place = {"kind": draft.kind, "key": draft.key, "version": draft.version}
    if draft.data is not None:
        rows = await session.run("keep", {**place, "data": draft.data})
        return int(rows[0][0]) if rows else None
    gone = await session.run("drop", place)
    if gone or (not draft.version and await _is_free(session, draft)):
        return 0
    return None


async def _is_free(session: PostgresSession, draft: RecordWrite) -> bool:
    return not await session.run("records", {"kind": draft.kind, "key": Texts([draft.key])})
