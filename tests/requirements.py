"""The numbered requirements, and which of them a test says it shows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

STORES = ("memory", "sqlite", "postgres", "redis")


def _load() -> dict[str, str]:
    sections = tomllib.loads(Path(__file__).with_name("requirements.toml").read_text("utf-8"))
    return {id_: text for section in sections.values() for id_, text in section.items()}


REQUIREMENTS = _load()


def shown_by(item: pytest.Item) -> set[str]:
    """The ids in a test's `req` marks, known or not."""
    return {id_ for mark in item.iter_markers("req") for id_ in mark.args}


def complaint(item: pytest.Item) -> str | None:
    """What is wrong with a test's `req` marks, if anything."""
    unknown = shown_by(item) - REQUIREMENTS.keys()
    strange = {name for mark in item.iter_markers("req") for name in mark.kwargs.get("stores", ())}
    strange -= set(STORES)
    if unknown:
        return f"{item.nodeid}: no such requirement: {', '.join(sorted(unknown))}"
    if strange:
        return f"{item.nodeid}: no such store: {', '.join(sorted(strange))}"
    return None


def stores_of(item: pytest.Item) -> set[str]:
    """Where a test runs: as its marks say, else by its parameters and markers; empty if pure."""
    named = {name for mark in item.iter_markers("req") for name in mark.kwargs.get("stores", ())}
    if named:
        return named
    callspec = getattr(item, "callspec", None)
    found = set(callspec.id.split("-")) & set(STORES) if callspec else set()
    if not found and item.get_closest_marker("postgres"):
        found = {"postgres"}
    if not found and (item.get_closest_marker("redis") or item.get_closest_marker("wire")):
        found = {"redis"}
    return found
