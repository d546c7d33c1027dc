"""One row of the table: a shape of use, the figure that it reached, and the figure to reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.effort import Effort
from bench.shapes.places import Places


@dataclass(frozen=True)
class Figure:
    """What was measured: the figure, whether it is reached, and the numbers behind it."""

    what: str
    text: str
    reached: bool
    behind: str = ""


Measurement = Callable[[Places, str, Effort], Awaitable[list[Figure]]]


@dataclass(frozen=True)
class Shape:
    """A shape of use and the stores it is measured on."""

    name: str
    stores: tuple[str, ...]
    measure: Measurement


def at_least(what: str, value: float, bound: float, behind: str = "") -> Figure:
    """Compare with a figure to reach."""
    return Figure(what, f"{value:.2f} (reach {bound:g})", value >= bound, behind)


def at_most(what: str, value: float, bound: float, behind: str = "") -> Figure:
    """Compare with a figure that must not be exceeded."""
    return Figure(what, f"{value:.2f} (at most {bound:g})", value <= bound, behind)
