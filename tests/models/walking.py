"""Walking through every world that can be, shortest ways first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.job import TERMINAL, State
from tests.models.lease import Rules, begin, is_told, moves

if TYPE_CHECKING:
    from tests.models.lease import World

PENDING = State.PENDING
MOST_WORLDS = 400_000


@dataclass(frozen=True)
class Walk:
    """What was found: how many worlds, and the shortest way to one that must not be."""

    worlds: int
    wrong: str = ""
    path: tuple[str, ...] = ()


def walk(rules: Rules) -> Walk:
    """Visit every world; stop at the first wrong one, or where no way leads to an end."""
    first = begin()
    came: dict[object, tuple[object, str]] = {first.key: (None, "")}
    before: dict[object, list[object]] = {first.key: []}
    ends: list[object] = []
    waiting: deque[World] = deque([first])
    while waiting:
        world = waiting.popleft()
        here = world.key
        if is_told(world) or (world.job.state in TERMINAL and world.child.state is not PENDING):
            ends.append(here)
        for name, after in moves(world, rules):
            there = after.key
            if after.wrong:
                return Walk(len(came), after.wrong, (*_path(came, here), name))
            if there not in came:
                if len(came) >= MOST_WORLDS:
                    raise AssertionError(f"more than {MOST_WORLDS} worlds")
                came[there] = (here, name)
                before[there] = []
                waiting.append(after)
            before[there].append(here)
    stuck = set(came) - _reaching(ends, before)
    if stuck:
        shortest = min((_path(came, place) for place in stuck), key=len)
        return Walk(len(came), "no way leads to an end", shortest)
    return Walk(len(came))


def _path(came: dict[object, tuple[object, str]], place: object) -> tuple[str, ...]:
    names: list[str] = []
    while came[place][0] is not None:
        place, name = came[place]
        names.append(name)
    return tuple(reversed(names))


def _reaching(ends: list[object], before: dict[object, list[object]]) -> set[object]:
    found = set(ends)
    waiting = list(ends)
    while waiting:
        for place in before[waiting.pop()]:
            if place not in found:
                found.add(place)
                waiting.append(place)
    return found
