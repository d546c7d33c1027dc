"""Routes about the service itself: health, metrics, its own description."""

from __future__ import annotations

import asyncio

from holdfast.api.responses import HealthBody
from holdfast.http.endpoint import Answer, Call, Endpoint, Text
from holdfast.http.metrics import exposition
from holdfast.http.permissions import Permission
from holdfast.store import Claim

PATIENCE = 5.0
PROBE = "holdfast/ready"
"""A queue nobody can submit to: claiming from it goes all the way and takes nothing."""


async def live(call: Call) -> Answer:
    """Say that the process answers."""
    return Answer(HealthBody(status="ok"))


async def ready(call: Call) -> Answer:
    """Say whether the store can be reached and claimed from."""
    service = call.service
    if service.stopping.is_set():
        return Answer(HealthBody(status="stopping"), 503, {"retry-after": "1"})
    probe = Claim(queues=(PROBE,), limit=1, worker="ready", token=service.app.randomness.token())
    try:
        async with asyncio.timeout(PATIENCE):
            await service.app.store.claim(probe)
    except Exception as error:  # noqa: BLE001  # whatever it is, we are not ready
        service.observer.emit("http.not_ready", error=repr(error))
        body = HealthBody(status="unavailable", checks={"store": type(error).__name__})
        return Answer(body, 503, {"retry-after": "1"})
    return Answer(HealthBody(status="ok", checks={"store": "ok", "claim": "ok"}))


async def metrics(call: Call) -> Text:
    """Return everything that is counted, for Prometheus."""
    body = await exposition(call)
    return Text(body, "text/plain; version=0.0.4; charset=utf-8")


async def openapi(call: Call) -> Text:
    """Return the description of this API."""
    return Text(call.service.document, "application/json")


async def docs(call: Call) -> Text:
    """Return the description of this API for people."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
    return Text(call.service.page, "text/html; charset=utf-8", headers=headers)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/health/live",
        name="getLiveness",
        summary="Say that the process answers",
        handler=live,
        permission=None,
        answer=HealthBody,
    ),
    Endpoint(
        method="GET",
        path="/health/ready",
        name="getReadiness",
        summary="Say whether the store can be reached and claimed from",
        handler=ready,
        permission=None,
        answer=HealthBody,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        name="getMetrics",
        summary="Show metrics for Prometheus",
        handler=metrics,
        permission=Permission.WATCH,
        media_type="text/plain",
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        name="getDocument",
        summary="Show this document",
        handler=openapi,
        permission=None,
    ),
    Endpoint(
        method="GET",
        path="/docs",
        name="getDocs",
        summary="Show this document to a person",
        handler=docs,
        permission=None,
        media_type="text/html",
    ),
)
