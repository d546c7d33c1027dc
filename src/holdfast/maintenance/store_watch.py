"""Notices settings of the store that were changed while it runs, so that it can lose jobs.

What a store was opened with was accepted then, or refused. Only what differs from the first look of
this process is reported, and what another leader has reported already.
"""

from __future__ import annotations

from holdfast.observe import Observer
from holdfast.operations.store_safety import report_safe, report_unsafe, unsafe
from holdfast.store import Finding, Level, Store

CHECKS = frozenset({"durability", "eviction", "journal", "filesystem"})
"""Findings of a store that decide whether it can lose an accepted job."""
EVERY = 20.0


class StoreWatch:
    """Reports each check of the store that fails now, once, and when it passes again."""

    name = "store"

    def __init__(self, store: Store, observer: Observer, every: float = EVERY) -> None:
        self._store = store
        self._observer = observer
        self._every = every
        self._accepted: dict[str, str] | None = None
        self._reported: dict[str, str] = {}

    async def once(self) -> float:
        found = [each for each in await self._store.findings() if each.name in CHECKS]
        before = {report.name for report in await unsafe(self._store)} | set(self._reported)
        if self._accepted is None:
            self._accepted = {each.name: each.text for each in found if each.name not in before}
        bad = {each.name: each for each in found if self._is_unsafe(each)}
        for name, each in bad.items():
            await self._report(name, each)
        for name in before - set(bad):
            self._reported.pop(name, None)
            self._observer.emit("store.safe", check=name)
            await report_safe(self._store, name)
        return self._every

    def _is_unsafe(self, finding: Finding) -> bool:
        if finding.level is Level.OK:
            return False
        return self._accepted is None or self._accepted.get(finding.name) != finding.text

    async def _report(self, name: str, finding: Finding) -> None:
        if self._reported.get(name) != finding.text:
            self._reported[name] = finding.text
            self._observer.emit(
                "store.unsafe", check=name, error=finding.text, advice=finding.advice
            )
        await report_unsafe(self._store, name, finding.text)
