"""Routes that show all jobs at once: failures by group, and measures over time."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import duration
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.model.failure_groups import FailureGroups
from holdfast.model.policy import DAY, HOUR

MEASURES_KEPT = 7 * DAY


async def failure_groups(call: Call) -> JsonResponse:
    """Return the failures of a window in groups."""
    window = cast("timedelta", call.query.get("time_range", HOUR))
    return JsonResponse(await call.operations.failure_groups(time_range=window))


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
)
