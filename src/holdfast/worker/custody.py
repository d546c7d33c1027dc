"""What a worker tells the process that watches over it: which jobs it holds just now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.worker.run import Run


class Custody(Protocol):
    """Hears of every job in hand. Called from the worker's loop and from its heartbeat."""

    def took(self, runs: Sequence[Run]) -> None:
        """Hear of jobs that were just claimed."""
        ...

    def renewed(self, runs: Sequence[Run]) -> None:
        """Hear that leases were renewed."""
        ...

    def settled(self, runs: Sequence[Run]) -> None:
        """Hear of jobs whose outcome was written or dropped."""
        ...


class Nobody:
    """Nobody watches."""

    def took(self, runs: Sequence[Run]) -> None:
        pass

    def renewed(self, runs: Sequence[Run]) -> None:
        pass

    def settled(self, runs: Sequence[Run]) -> None:
        pass
