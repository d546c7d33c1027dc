"""What a store may say of itself, for others to make use of."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class GroupCommitStore(Protocol):
    """A store that writes whatever one turn of the event loop asks for in one transaction."""

    GROUPS_COMMITS: bool


@runtime_checkable
class LanedStore(Protocol):
    """A store that writes several groups of jobs faster side by side than one after the other."""

    LANES: int
