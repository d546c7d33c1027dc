"""Routes about the service itself: health, metrics, OpenAPI document and docs page."""

from __future__ import annotations

import asyncio

from holdfast.api.responses import HealthBody
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.metrics import (
    connection_metrics,
    job_metrics,
    maintenance_metrics,
    request_metrics,
)
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse, TextResponse
from holdfast.operations.quarantine import failing
from holdfast.operations.store_safety import unsafe
from holdfast.store import Claim

PROBE_TIMEOUT = 5.0
PROBE_QUEUE = "holdfast/ready"
"""No job can be submitted to this queue: a claim runs fully and returns nothing."""


async def live(call: Call) -> JsonResponse:
    """Report that the process responds."""
    return JsonResponse(HealthBody(status="ok"))


async def ready(call: Call) -> JsonResponse:
    """Report whether the store can be reached and claimed from."""
    service = call.service
    if service.stopping.is_set():
        return JsonResponse(HealthBody(status="stopping"), 503, {"retry-after": "1"})
    probe = Claim(
        queues=(PROBE_QUEUE,), limit=1, worker="ready", token=service.app.randomness.token()
    )
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await service.app.store.claim(probe)
            broken, changed = await _failing(call), await _unsafe(call)
    except Exception as error:  # noqa: BLE001  # any error means: not ready
        service.observer.emit("http.not_ready", error=repr(error))
        body = HealthBody(status="unavailable", checks={"store": type(error).__name__})
        return JsonResponse(body, 503, {"retry-after": "1"})
    checks = {"store": changed or "ok", "claim": "ok", "maintenance": broken or "ok"}
    status = "degraded" if broken or changed else "ok"
    return JsonResponse(HealthBody(status=status, checks=checks))


async def _failing(call: Call) -> str:
    """Return which maintenance services fail: this process still serves, but jobs may wait."""
    names = [report.name for report in await failing(call.service.app.store)]
    return f"failing: {', '.join(names)}" if names else ""


async def _unsafe(call: Call) -> str:
    """Return which settings were changed so that the store can lose jobs; it still serves."""
    names = [report.name for report in await unsafe(call.service.app.store)]
    return f"unsafe: {', '.join(names)}" if names else ""


async def metrics(call: Call) -> TextResponse:
    """Return metrics in the text format of Prometheus."""
    lines = await job_metrics(call.operations)
    if not call.caller.namespace:
        service = call.service
        lines += await maintenance_metrics(service.app.store)
        lines += request_metrics(service.request_counts, service.tail.subscribers)
        lines += connection_metrics(len(service.connections), service.rejections.counts)
    body = ("\n".join(lines) + "\n").encode()
    return TextResponse(body, "text/plain; version=0.0.4; charset=utf-8")


async def openapi(call: Call) -> TextResponse:
    """Return the OpenAPI document."""
    return TextResponse(call.service.document, "application/json")


async def docs(call: Call) -> TextResponse:
    """Return the OpenAPI document as a page of HTML."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
    return TextResponse(call.service.docs_page, "text/html; charset=utf-8", headers=headers)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/health/live",
        name="getLiveness",
        summary="Check that the process responds",
        handler=live,
        permission=None,
        response=HealthBody,
    ),
    Endpoint(
        method="GET",
        path="/health/ready",
        name="getReadiness",
        summary="Check that the store can be reached and claimed from",
        handler=ready,
        permission=None,
        response=HealthBody,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        name="getMetrics",
        summary="Get metrics for Prometheus",
        handler=metrics,
        permission=Permission.WATCH,
        media_type="text/plain",
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        name="getDocument",
        summary="Get this document",
        handler=openapi,
        permission=None,
    ),
    Endpoint(
        method="GET",
        path="/docs",
        name="getDocs",
        summary="Get this document as a web page",
        handler=docs,
        permission=None,
        media_type="text/html",
    ),
)
