"""Visits every reachable state of a model, shortest paths first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_WORLDS = 400_000


class Place(Protocol):
    """A state of a model."""

    @property
    def key(self) -> object:
        """The value that identifies the state."""
        ...

    @property
    def wrong(self) -> str:
        """The property that the last move broke."""
        ...

    @property
    def is_end(self) -> bool:
        """Whether the state is final."""
        ...


W = TypeVar("W", bound=Place)


@dataclass(frozen=True)
class Walk:
    """The result: how many states were visited, and the shortest path to a wrong one."""

    worlds: int
    moves: int
    wrong: str = ""
    path: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    """The names of all moves."""


def walk(first: W, moves: Callable[[W], Iterator[tuple[str, W]]]) -> Walk:
    """Visit every state; stop at the first wrong one; report states that reach no final state."""
    came: dict[object, tuple[object, str]] = {first.key: (None, "")}
    before: dict[object, list[object]] = {first.key: []}
    ends: list[object] = []
    waiting: deque[W] = deque([first])
    named: set[str] = set()
    made = 0
    while waiting:
        world = waiting.popleft()
        here = world.key
        if world.is_end:
            ends.append(here)
        for name, after in moves(world):
            made += 1
            named.add(name)
            there = after.key
            if after.wrong:
                return Walk(len(came), made, after.wrong, (*_path(came, here), name))
            if there not in came:
                if len(came) >= MOST_WORLDS:
                    raise AssertionError(f"more than {MOST_WORLDS} states")
                came[there] = (here, name)
                before[there] = []
                waiting.append(after)
            before[there].append(here)
    stuck = set(came) - _reaching(ends, before)
    path = min((_path(came, place) for place in stuck), key=len, default=())
    wrong = "no path leads to an end" if stuck else ""
    return Walk(len(came), made, wrong, path, frozenset(named))


def _path(came: dict[object, tuple[object, str]], place: object) -> tuple[str, ...]:
    names: list[str] = []
    while came[place][0] is not None:
        place, name = came[place]
        names.append(name)
    return tuple(reversed(names))


def _reaching(ends: Iterable[object], before: dict[object, list[object]]) -> set[object]:
    found = set(ends)
    waiting = list(found)
    while waiting:
        for place in before[waiting.pop()]:
            if place not in found:
                found.add(place)
                waiting.append(place)
    return found
