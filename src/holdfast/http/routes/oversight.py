"""Routes that show all jobs at once: failures by group, and measures over time."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import duration, text_list
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.model.failure_groups import FailureGroups
from holdfast.model.policy import DAY, HOUR
from holdfast.model.series import Series
from holdfast.operations.series import MOST_NAMED

MEASURES_KEPT = 7 * DAY


async def failure_groups(call: Call) -> JsonResponse:
    """Return the failures of a window in groups."""
    window = cast("timedelta", call.query.get("time_range", HOUR))
    return JsonResponse(await call.operations.failure_groups(time_range=window))


async def series(call: Call) -> JsonResponse:
    """Return the measures of a range, step by step."""
    return JsonResponse(await call.operations.series(**call.query))  # type: ignore[arg-type]  # read by type


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/failures/groups",
        name="listFailureGroups",
        summary="List failures in groups of the same type, code and kind of message",
        description="A group counts the jobs that became FAILED or DEAD_LETTER in the window, also"
        " those that were retried or deleted since. failed_now counts what is failed now. The group"
        " filter of a search lists the jobs of a group.",
        handler=failure_groups,
        permission=Permission.WATCH,
        query=(
            duration(
                "time_range",
                maximum=MEASURES_KEPT.total_seconds(),
                description="The window up to now: at most a week, an hour by default.",
            ),
        ),
        response=FailureGroups,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/series",
        name="getSeries",
        summary="Get counts and percentiles over time",
        description="A step is 1 minute (ranges of up to 3 hours), 10 minutes (2 days) or 1 hour;"
        " by default the one that suits the range. Every line has one value per step, the oldest"
        " first; the last step is not over. The total is over all queues.",
        handler=series,
        permission=Permission.WATCH,
        query=(
            duration(
                "time_range",
                maximum=MEASURES_KEPT.total_seconds(),
                description="The range up to now: at most a week, an hour by default.",
            ),
            duration("step", description="60 s, 600 s or 3600 s."),
            text_list("queues", maximum=MOST_NAMED, description="Lines of these queues."),
            text_list("types", maximum=MOST_NAMED, description="Lines of these types."),
            text_list("breakdown_by", choices=("QUEUE", "TYPE"), maximum=2),
        ),
        response=Series,
    ),
)
