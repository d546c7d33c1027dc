"""The address of the dashboard itself: leads to the failures while anything fails."""

from __future__ import annotations

from datetime import timedelta

from holdfast.dashboard.visits import ScreenRoute, Visit

HOUR = timedelta(hours=1)


async def home(visit: Visit) -> tuple[str, ...]:
    """Return the page to begin with."""
    if not visit.may("listFailureGroups"):
        return ("jobs",)
    recent = await visit.operations.failure_groups(time_range=HOUR)
    return ("failures",) if recent.total else ("overview",)


SCREENS = (ScreenRoute(path="/", title="", template="", call="listJobs", view=home, live=False),)
