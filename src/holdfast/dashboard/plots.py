"""Plots over days as SVG, made on the server: throughput as columns, latencies as lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from markupsafe import Markup

from holdfast.dashboard.formats import count, duration

WIDE, TALL = 600, 120
LINES = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 86_400.0)
"""Seconds at which a plot of latencies has a line."""
NAMES = ("1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d")


class Span:
    """The time that a plot covers, in equal steps."""

    def __init__(self, since: datetime, step: timedelta, points: int) -> None:
        self.since = since
        self.step = step
        self.points = max(1, points)

    def days(self) -> Iterator[tuple[float, str]]:
        """Yield where each day begins, from 0 to 1, and its name."""
        whole = self.step * self.points
        day = self.since.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        while day < self.since + whole:
            yield (day - self.since) / whole, f"{day:%a}"
            day += timedelta(days=1)

    def name(self, at: int) -> str:
        """Return the time of a step."""
        return f"{self.since + self.step * at:%a %H:%M}"


def throughput(good: Sequence[int], bad: Sequence[int], span: Span, label: str) -> Markup:
    """Return a column per step: jobs that completed, with those that failed on top."""
    top = max((a + b for a, b in zip(good, bad, strict=True)), default=0) or 1
    step = WIDE / span.points
    drawn = Markup("")
    for at, (well, ill) in enumerate(zip(good, bad, strict=True)):
        if not well + ill:
            continue
        drawn += Markup("<g><title>{}</title>").format(
            f"{span.name(at)}: {count(well)} completed, {count(ill)} failed"
        )
        below = 0.0
        for tone, number in (("good", well), ("bad", ill)):
            if number:
                size = max(1.5, number / top * TALL)
                drawn += Markup(
                    '<rect class="tone-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>'
                ).format(tone, at * step, TALL - below - size, step * 0.84, size)
                below += size
        drawn += Markup("</g>")
    marks = [(0.0, count(top)), (0.5, count(top / 2) if top > 1 else ""), (1.0, "0")]
    return _framed(drawn, span, marks, label)


def latencies(
    lines: Sequence[tuple[str, str, Sequence[float | None]]], span: Span, label: str
) -> Markup:
    """Return lines of seconds on a logarithmic scale: each a tone, a name and its values."""
    known = [value for _, _, values in lines for value in values if value is not None]
    if not known:
        return Markup("")
    low, high = _bounds(min(known), max(known))
    depth = math.log(LINES[high] / LINES[low])

    def y(seconds: float) -> float:
        bounded = min(max(seconds, LINES[low]), LINES[high])
        return TALL * (1 - math.log(bounded / LINES[low]) / depth)

    step = WIDE / span.points
    drawn = Markup("")
    for tone, _, values in lines:
        drawn += Markup('<path class="tone-{}" d="{}"/>').format(tone, _path(values, step, y))
    for at in range(span.points):
        words = [f"{name} {duration(v[at])}" for _, name, v in lines if v[at] is not None]
        if words:
            drawn += Markup(
                '<rect class="reach" x="{:.2f}" y="0" width="{:.2f}" height="{}">'
                "<title>{}</title></rect>"
            ).format(at * step, step, TALL, f"{span.name(at)}: {', '.join(words)}")
    marks = [(y(LINES[each]) / TALL, NAMES[each]) for each in range(low, high + 1)]
    return _framed(drawn, span, marks, label)


def _bounds(least: float, most: float) -> tuple[int, int]:
    """Return the lines below and above all values."""
    low = max((at for at, line in enumerate(LINES) if line <= least), default=0)
    high = min((at for at, line in enumerate(LINES) if line >= most), default=len(LINES) - 1)
    return (low, high) if low < high else (max(0, high - 1), max(1, high))


def _path(values: Sequence[float | None], step: float, y: object) -> str:
    """Return the path of a line; it has gaps where nothing is known."""
    assert callable(y)
    parts, pen = [], False
    for at, value in enumerate(values):
        if value is None:
            pen = False
            continue
        parts.append(f"{'L' if pen else 'M'}{(at + 0.5) * step:.2f} {y(value):.2f}")
        if not pen:
            parts.append("h0.01")  # a value between gaps is a dot
        pen = True
    return "".join(parts)


def _framed(drawn: Markup, span: Span, marks: Sequence[tuple[float, str]], label: str) -> Markup:
    """Return a drawing with lines and names at its marks, and the days below."""
    grid = Markup("").join(
        Markup('<path class="base" d="M0 {:.2f}H{}"/>').format(share * TALL, WIDE)
        for share, _ in marks
    )
    days = list(span.days())
    grid += Markup("").join(
        Markup('<path class="base" d="M{:.2f} 0V{}"/>').format(at * WIDE, TALL) for at, _ in days
    )
    names = Markup("").join(
        Markup('<text x="{:.2f}%" y="{}">{}</text>').format(at * 100, TALL + 22, name)
        for at, name in days
        if at < 0.96
    )
    scale = Markup("").join(
        Markup('<text x="6" y="{:.1f}">{}</text>').format(10 + share * TALL, name)
        for share, name in marks
    )
    return Markup(
        '<div class="history"><svg class="area" role="img" aria-label="{}"><svg x="0" y="6"'
        ' width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}{}</svg>{}'
        '</svg><svg class="scale" aria-hidden="true">{}</svg></div>'
    ).format(label, TALL, WIDE, TALL, grid, drawn, names, scale)
