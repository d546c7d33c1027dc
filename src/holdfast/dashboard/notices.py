"""What an action did, kept for the page that follows it: shown once, then forgotten."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from holdfast.runtime.randomness import Randomness

MOST = 1000


class Notice(msgspec.Struct, frozen=True):
    """A sentence for the person who acted."""

    message: str
    failed: bool = False


class Notices:
    """Sentences by a random id, each for one visitor."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._kept: OrderedDict[tuple[str, str], Notice] = OrderedDict()

    def add(self, subject: str, notice: Notice) -> str:
        """Keep a notice; return the id for the address of the next page."""
        id_ = self._randomness.token()[:12]
        self._kept[subject, id_] = notice
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return id_

    def take(self, subject: str, id_: str) -> Notice | None:
        """Return a notice of this visitor, the first time."""
        return self._kept.pop((subject, id_), None) if id_ else None
