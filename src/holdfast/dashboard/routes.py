"""The table of all screens and actions, and the navigation."""

from __future__ import annotations

import msgspec

from holdfast.dashboard.screens import (
    bulk,
    copies,
    downloads,
    failures,
    home,
    job,
    jobs,
    limits,
    overview,
    queues,
    schedules,
    system,
    webhooks,
    workers,
    workflow,
)
from holdfast.dashboard.visits import Action, ScreenRoute


class NavigationItem(msgspec.Struct, frozen=True):
    """An entry of the navigation."""

    section: str
    label: str
    path: str
    call: str
    key: str = ""
    """The letter that leads there, after ``g``."""


NAVIGATION = (
    NavigationItem("overview", "Overview", "overview", "listQueues", "o"),
    NavigationItem("failures", "Failures", "failures", "listFailureGroups", "f"),
    NavigationItem("jobs", "Jobs", "jobs", "listJobs", "j"),
    NavigationItem("queues", "Queues", "queues", "listQueues", "q"),
    NavigationItem("workers", "Workers", "workers", "listWorkers", "w"),
    NavigationItem("schedules", "Schedules", "schedules", "listSchedules", "s"),
    NavigationItem("limits", "Limits", "limits", "listLimits", "l"),
    NavigationItem("system", "System", "doctor", "listQueues", "d"),
)

SCREENS: tuple[ScreenRoute, ...] = (
    *home.SCREENS,
    *overview.SCREENS,
    *failures.SCREENS,
    *jobs.SCREENS,
    *job.SCREENS,
    *copies.SCREENS,
    *downloads.SCREENS,
    *bulk.SCREENS,
    *queues.SCREENS,
    *workers.SCREENS,
    *schedules.SCREENS,
    *limits.SCREENS,
    *workflow.SCREENS,
    *webhooks.SCREENS,
    *system.SCREENS,
)
"""Every page."""

ACTIONS: tuple[Action, ...] = (
    *job.ACTIONS,
    *copies.ACTIONS,
    *bulk.ACTIONS,
    *queues.ACTIONS,
    *workers.ACTIONS,
    *schedules.ACTIONS,
    *limits.ACTIONS,
    *workflow.ACTIONS,
    *webhooks.ACTIONS,
)
"""Every form that changes something."""
