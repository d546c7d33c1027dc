"""What the store knows for the completion of a search: one bounded read for the word at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from holdfast.dashboard.visits import Visit

SAMPLED = 100
"""The newest jobs whose tags are offered."""
WEEK = timedelta(days=7)


async def known_values(visit: Visit, name: str) -> Mapping[str, Iterable[str]]:
    """Return the values of a qualifier; without one, the types and the names of tags."""
    if name.startswith("tag."):
        return await _tags(visit)
    match name.lower():
        case "worker" if visit.may("listWorkers"):
            return {"worker": [each.id for each in await visit.operations.workers()]}
        case "code" if visit.may("listFailureGroups"):
            found = await visit.operations.failure_groups(time_range=WEEK)
            return {"code": _each(group.code for group in found.groups if group.code)}
        case "" | "type" | "queue" if visit.may("getStats"):
            stats = await visit.operations.stats(breakdown_by=["TYPE", "QUEUE"])
            return {"type": list(stats.by_type or {}), "queue": list(stats.by_queue or {})}
        case _:
            return {}


async def _tags(visit: Visit) -> Mapping[str, Iterable[str]]:
    """Return the tags of the newest jobs, as ``tag.NAME`` and its values."""
    page = await visit.operations.search({"limit": SAMPLED})
    found: dict[str, dict[str, None]] = {}
    for job in page.jobs:
        for name, value in job.tags.items():
            found.setdefault(f"tag.{name}", {})[value] = None
    return {name: list(values) for name, values in found.items()}


def _each(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
