"""Renders templates: everything is escaped, and live fragments are collected on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from holdfast.dashboard import charts, formats, graphs, plots
from holdfast.dashboard.deeds import deed
from holdfast.dashboard.sentences import spoken
from holdfast.dashboard.states import STATES
from holdfast.dashboard.statics import StaticFiles

_MOVING = re.compile(r"(<time[^>]*>)[^<]*|(data-moves value=\")[^\"]*")
"""What changes with the clock alone: the browser counts on by itself."""


class Rendered(msgspec.Struct, frozen=True):
    """A page, and its live fragments by name."""

    html: str
    fragments: Mapping[str, str]


class LiveFragments:
    """Collects the parts of a page that change while it is open."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def __call__(self, name: str, caller: Callable[[], str]) -> Markup:
        """Mark a part; templates write ``{% call live('rows') %}``."""
        inner = caller()
        self.found[name] = str(inner)
        return Markup('<div id="live-{}" data-live>{}</div>').format(name, Markup(inner))  # noqa: S704  # rendered with autoescape


def stable(fragment: str) -> str:
    """Return a fragment without what only the clock changes, to compare it."""
    return _MOVING.sub(r"\1\2", fragment)


class Renderer:
    """The templates of a dashboard."""

    def __init__(self, statics: StaticFiles) -> None:
        self._environment = _environment()
        self._statics = statics

    def page(
        self, template: str, values: Mapping[str, Any], *, now: datetime, bare: bool = False
    ) -> Rendered:
        """Render a page, or for the feed only its own part."""
        live = LiveFragments()
        html = self._environment.get_template(template).render(
            layout="bare.html" if bare else "layout.html",
            live=live,
            now=now,
            static=self._statics.names,
            ago=lambda at: _time(at, now),
            since=lambda at: _span(at, now),
            spoken=lambda text: spoken(text, now),
            **values,
        )
        return Rendered(html, live.found)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("holdfast.dashboard"),
        autoescape=True,
        finalize=formats.visible,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "duration": formats.duration,
        "number": formats.count,
        "short": formats.short,
        "bytes": formats.byte_size,
        "per_minute": formats.per_minute,
        "unit": formats.unit,
        "plural": formats.plural,
        "instant": formats.instant,
        "iso": formats.iso,
        "clock": formats.clock_time,
        "short_id": formats.short_id,
        "deed": deed,
    }
    made.globals |= {"STATES": STATES, "charts": charts, "graphs": graphs, "plots": plots}
    for name in made.list_templates():  # an upgrade under a running server must not mix versions
        made.get_template(name)
    return made


def _time(at: datetime | None, now: datetime) -> Markup:
    """Return an instant as the time since or until it, with the instant itself on hover."""
    if at is None:
        return Markup('<span class="none">\N{EN DASH}</span>')
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        formats.iso(at), formats.instant(at), formats.relative(at, now)
    )


def _span(at: datetime | None, now: datetime) -> Markup:
    """Return the time since an instant, which goes on: ``42 s``."""
    if at is None:
        return Markup("")
    return Markup('<time datetime="{}" title="since {}" data-since>{}</time>').format(
        formats.iso(at), formats.instant(at), formats.passed(at, now)
    )
