"""The shape of every maintenance service: ``once`` does the work and says when to come back."""

from __future__ import annotations

from typing import Protocol


class MaintenanceService(Protocol):
    """Something done again and again, safe to do anywhere, any number at once."""

    name: str

    async def once(self) -> float:
        """Do what is due and return how many seconds to wait before the next time."""
        ...
