"""Charts as SVG, made on the server; colours come from the style sheet."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 120, 28


def sparkline(series: Sequence[float], label: str, *, tone: str = "active") -> Markup:
    """Return bars over time, as high as their share of the largest one."""
    values = _thinned(series, 60)
    if not values:
        return Markup("")
    top = max(*values, 1)
    step = WIDTH / len(values)
    bars = Markup("").join(
        Markup('<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
            at * step, HEIGHT - high, max(step - 0.6, 0.8), high
        )
        for at, value in enumerate(values)
        if value and (high := max(1.5, value / top * (HEIGHT - 1)))
    )
    return Markup(
        '<svg class="spark tone-{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="base" x="0" y="{}" width="{}" height="1"/>{}</svg>'
    ).format(tone, WIDTH, HEIGHT, label, HEIGHT - 1, WIDTH, bars)


def columns(good: Sequence[float], bad: Sequence[float], label: str) -> Markup:
    """Return columns over time of what ended well, with what failed on top."""
    pairs = list(zip(good, bad, strict=True))
    top = max((a + b for a, b in pairs), default=0) or 1
    step = 600 / max(1, len(pairs))
    bars = Markup("")
    for at, (well, ill) in enumerate(pairs):
        high, low = ill / top * 96, well / top * 96
        bars += Markup("<g><title>{}</title>").format(f"{well:g} completed, {ill:g} failed")
        for tone, size, below in (("good", low, 0.0), ("bad", high, low)):
            if size:
                tall = max(size, 1.5)
                bars += Markup(
                    '<rect class="tone-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>'
                ).format(tone, at * step, 99 - below - tall, step * 0.82, tall)
        bars += Markup("</g>")
    grid = Markup("").join(
        Markup('<rect class="base" x="0" y="{}" width="600" height="0.5"/>').format(y)
        for y in (3, 51, 99)
    )
    axis = Markup("").join(
        Markup("<span>{}</span>").format(name)
        for name in ("60 min ago", "45 min", "30 min", "15 min", "now")
    )
    return Markup(
        '<div class="plot"><span class="top">{}</span><svg viewBox="0 0 600 100"'
        ' preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
        '<div class="axis" aria-hidden="true">{}</div></div>'
    ).format(f"{top:g}", label, grid, bars, axis)


def stacked(parts: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """Return one bar of parts: their tone, their size and what they are."""
    shown = [part for part in parts if part[1] > 0]
    total = sum(size for _, size, _ in shown)
    if not total:
        return Markup("")
    least = 0.8  # percent: a short part must not vanish
    sizes = [max(least, size / total * 100) for _, size, _ in shown]
    scale = 100 / sum(sizes)
    bars, at = Markup(""), 0.0
    for (tone, _, text), size in zip(shown, sizes, strict=True):
        wide = size * scale
        bars += Markup(
            '<rect class="tone-{}" x="{:.3f}" y="0" width="{:.3f}" height="10"><title>{}</title>'
            "</rect>"
        ).format(tone, at, max(wide - 0.15, 0.1), text)
        at += wide
    return Markup(
        '<svg class="stacked" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>'
    ).format(label, bars)


def meter(share: float, label: str, *, tone: str = "active") -> Markup:
    """Return a bar that is filled to a share from 0 to 1."""
    filled = max(0.0, min(1.0, share)) * 100
    return Markup(
        '<svg class="meter tone-{}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="base" x="0" y="0" width="100" height="6"/>'
        '<rect x="0" y="0" width="{:.2f}" height="6"/></svg>'
    ).format(tone, label, filled)


def _thinned(series: Sequence[float], most: int) -> list[float]:
    """Join neighbours until there are few enough bars."""
    values = list(series)
    size = -(-len(values) // most) or 1
    return [sum(values[at : at + size]) for at in range(0, len(values), size)]
