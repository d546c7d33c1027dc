"""Small records beside the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store._shapes import Draft, Record


class Records:
    """The part of the memory store that keeps records; see ``Store`` for what it promises."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Record] = {}

    async def keep(self, drafts: Sequence[Draft]) -> list[int | None]:
        return [self._keep(draft) for draft in drafts]

    def _keep(self, draft: Draft) -> int | None:
        place = (draft.kind, draft.key)
        had = self._kept[place].version if place in self._kept else 0
        if draft.version is not None and draft.version != had:
            return None
        if draft.data is None:
            self._kept.pop(place, None)
            return 0
        self._kept[place] = Record(*place, draft.data, had + 1)
        return had + 1

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        return [self._kept.get((kind, key)) for key in keys]

    async def kinds(self) -> list[str]:
        return sorted({kind for kind, _ in self._kept})

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        found = [r for r in self._kept.values() if r.kind == kind and r.key.startswith(prefix)]
        found.sort(key=lambda record: record.key, reverse=last)
        if after:
            found = [r for r in found if (r.key < after if last else r.key > after)]
        return found[:limit]
