"""How much work a benchmark does: enough to compare, less, or just enough to see that it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Effort(StrEnum):
    """The size of a run."""

    FULL = "full"
    QUICK = "quick"
    MOMENT = "moment"

    def pick(self, full: T, quick: T, moment: T) -> T:
        """Return the value for this effort."""
        return {Effort.FULL: full, Effort.QUICK: quick, Effort.MOMENT: moment}[self]

    @property
    def installs(self) -> bool:
        """Whether missing peers are installed first; a moment is too short for that."""
        return self is not Effort.MOMENT
