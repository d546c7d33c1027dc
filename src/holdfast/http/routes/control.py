"""Routes for operators: limits, drained workers, autoscaling."""

from __future__ import annotations

from typing import cast

from holdfast.api.responses import LimitLift, LimitList
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import duration, flag, integer
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.routes.system import queue_of
from holdfast.model.pace import MOST
from holdfast.model.queues import QueueScale
from holdfast.model.workers import WorkerInfo
from holdfast.operations.control_on_store import MOST_SLOTS
from holdfast.operations.graph import JobGraph
from holdfast.operations.limits import LimitInfo


async def graph(call: Call) -> JsonResponse:
    """Return the workflow around a job."""
    collapse = bool(call.query.get("collapse", True))
    return JsonResponse(await call.operations.graph(call.job_id, collapse=collapse))


async def limits(call: Call) -> JsonResponse:
    """Return every limit."""
    return JsonResponse(LimitList(tuple(await call.operations.limit_states())))


async def set_limit(call: Call) -> JsonResponse:
    """Set a limit."""
    made = await call.operations.set_limit(call.path["scope"], **call.fields)  # type: ignore[arg-type]  # read by type
    return JsonResponse(made)


async def lift_limit(call: Call) -> JsonResponse:
    """Lift a limit."""
    scope = call.path["scope"]
    return JsonResponse(LimitLift(scope, await call.operations.lift_limit(scope)))


async def drain(call: Call) -> JsonResponse:
    """Drain a worker."""
    return JsonResponse(await call.operations.drain(call.path["worker"]))


async def undrain(call: Call) -> JsonResponse:
    """Undrain a worker."""
    return JsonResponse(await call.operations.undrain(call.path["worker"]))


async def scale(call: Call) -> JsonResponse:
    """Return how many workers a queue needs."""
    slots = cast("int", call.query.get("slots", 20))
    return JsonResponse(await call.operations.scale(queue_of(call), slots=slots))


_SCOPE = "/api/v1/limits/{scope}"

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/jobs/{job_id}/graph",
        name="getJobGraph",
        summary="Get the workflow around a job: nodes, edges and states",
        description="Siblings that are alike are one node with counts, unless collapse is false.",
        handler=graph,
        permission=Permission.READ,
        query=(flag("collapse", "Whether siblings that are alike become one node."),),
        response=JobGraph,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/limits",
        name="listLimits",
        summary="List limits with what is used of them",
        handler=limits,
        permission=Permission.WATCH,
        response=LimitList,
    ),
    Endpoint(
        method="POST",
        path=_SCOPE,
        name="setLimit",
        summary="Set a limit across all workers",
        description="The scope is queue:NAME, task:TYPE or key:TYPE; in a namespace queue:NAME."
        " It holds until it is lifted, whatever code declares.",
        handler=set_limit,
        permission=Permission.OPERATE,
        body_fields=(
            integer("concurrency", 1, MOST, description="Jobs that may run at once."),
            integer("rate", 1, MOST, description="Jobs that may start per period, evenly spaced."),
            duration("per", description="The length of the period; a second by default."),
            integer(
                "burst",
                1,
                MOST,
                description="Jobs of the rate that may start at once after a pause;"
                " by default 1 and a tenth of the rate.",
            ),
        ),
        example={"rate": 100, "per": "PT1M"},
        response=LimitInfo,
        audited=True,
    ),
    Endpoint(
        method="DELETE",
        path=_SCOPE,
        name="liftLimit",
        summary="Lift a limit; what the code declares applies again",
        handler=lift_limit,
        permission=Permission.OPERATE,
        response=LimitLift,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/workers/{worker}/drain",
        name="drainWorker",
        summary="Ask a worker to stop claiming; it stays up",
        handler=drain,
        permission=Permission.OPERATE,
        body_fields=(),
        response=WorkerInfo,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/workers/{worker}/undrain",
        name="undrainWorker",
        summary="Ask a drained worker to claim again",
        handler=undrain,
        permission=Permission.OPERATE,
        body_fields=(),
        response=WorkerInfo,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/queues/{queue}/scale",
        name="scaleQueue",
        summary="Get how many workers the jobs of a queue would fill",
        description="Always numbers: a queue without jobs, or an unknown one, has zeros.",
        handler=scale,
        permission=Permission.WATCH,
        query=(integer("slots", 1, MOST_SLOTS, default=20, description="Slots of one worker."),),
        response=QueueScale,
    ),
)
