"""The interface of every maintenance service."""

from __future__ import annotations

from typing import Protocol


class MaintenanceService(Protocol):
    """Work that is repeated; any number of processes may do it at once."""

    name: str

    async def once(self) -> float:
        """Do what is due; return how many seconds to wait before the next time."""
        ...
