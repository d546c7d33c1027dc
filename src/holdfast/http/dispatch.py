"""From an ASGI request to a response: authenticate, check limits, read, call, report errors."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import msgspec

from holdfast.api.errors import ErrorResponse, RequestError, error_body
from holdfast.api.responses import AuditEntry
from holdfast.http import requests
from holdfast.http.audit import Audit
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import read_fields, read_query
from holdfast.http.refusals import ACTIONS
from holdfast.http.responses import (
    AnyResponse,
    JsonResponse,
    Receive,
    Send,
    StreamResponse,
    send_response,
    send_stream,
)
from holdfast.http.service import Service
from holdfast.runtime.timeouts import Timeouts

Scope = MutableMapping[str, Any]  # as ASGI defines it
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""


class Dispatcher:
    """Serves the endpoints of one service."""

    def __init__(self, service: Service, limits: requests.RequestLimits | None = None) -> None:
        self._service = service
        self._limits = limits or requests.RequestLimits()
        self._monotonic = service.app.clock.monotonic
        self._request_ids = requests.RequestIds(service.app.randomness)
        self._timeouts = Timeouts()

    async def serve(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = dict(scope["headers"])
        request_id = self._request_ids.of(headers)
        started = self._monotonic()
        response: AnyResponse
        try:
            response = await self._respond(endpoint, scope, headers, receive, request_id)
        except Exception as error:  # noqa: BLE001  # every error becomes a response
            response = self._error_response(error, request_id)
            if response.status in ACTIONS:
                self._count_refusal(response.status, error, scope, request_id)
        if isinstance(response, StreamResponse):
            status = 200
            await send_stream(response, request_id, self._service.stopping, receive, send)
        else:
            status = response.status
            await send_response(send, response, request_id, headers.get(b"accept-encoding", b""))
        self._service.request_counts.add(endpoint.name, status, self._monotonic() - started)

    async def refuse(self, error: RequestError, scope: Scope, send: Send) -> None:
        """Respond with an error to a request that matches no endpoint."""
        request_id = self._request_ids.of(dict(scope["headers"]))
        await send_response(send, self._error_response(error, request_id), request_id, b"")

    async def _respond(
        self,
        endpoint: Endpoint,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        request_id: str,
    ) -> AnyResponse:
        service = self._service
        caller = await requests.authenticate(
            service.keys, service.hosts, endpoint.permission, headers
        )
        if service.keys.is_empty and scope["method"] not in SAFE_METHODS:
            requests.check_origin(service.origins, headers)
        service.key_limits.admit(caller)
        call = Call(service, caller, service.operations_for(caller), receive)
        call.path, call.headers = scope["path_params"], headers
        call.query = read_query(scope["query_string"].decode("latin-1"), endpoint.query)
        if endpoint.takes_body:
            call.body = await requests.read_body(headers, receive, self._limits, self._timeouts)
        if endpoint.body_fields is not None:
            call.fields = read_fields(call.body, endpoint.body_fields, call.path)
        work = (
            self._audited(endpoint, call, scope, request_id)
            if endpoint.audited
            else endpoint.handler(call)
        )
        if endpoint.timeout is None:
            return await work
        with self._timeouts.within(endpoint.timeout):
            return await work

    async def _audited(
        self, endpoint: Endpoint, call: Call, scope: Scope, request_id: str
    ) -> AnyResponse:
        audit = Audit(call.operations.store)
        client = scope.get("client")
        entry = await audit.begin(
            call.caller,
            endpoint.name,
            target=scope["path"],
            detail=call.body,
            client=client[0] if client else "",
            request_id=request_id,
        )
        try:
            response = await endpoint.handler(call)
        except Exception as error:
            await audit.end(entry, error_body(error)[0])
            raise
        await audit.end(entry, 200 if isinstance(response, StreamResponse) else response.status)
        return response

    def _count_refusal(self, status: int, error: Exception, scope: Scope, request_id: str) -> None:
        """Count a refused call for the audit log, under the key that its secret names."""
        service, client = self._service, scope.get("client")
        call = AuditEntry(
            timestamp=service.app.store.now(),
            request_id=request_id,
            key_id="",
            key_name="",
            role="",
            namespace="",
            action="",
            target=f"{scope['method']} {scope['path']}",
            detail=str(error),
            client=client[0] if client else "",
        )
        service.refusals.add(
            status, service.keys.named(requests.secret(dict(scope["headers"]))), call
        )

    def _error_response(self, error: BaseException, request_id: str) -> JsonResponse:
        """Describe a wrong request to its client; log an unexpected error."""
        status, body = error_body(error)
        if status == 500:
            self._service.observer.emit("http.failed", request_id=request_id, error=repr(error))
        headers = {}
        if body.retry_after:
            headers["retry-after"] = str(max(1, -int(-body.retry_after.total_seconds() // 1)))
        elif status == 503:
            headers["retry-after"] = "1"
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        if isinstance(error, RequestError) and error.allow:
            headers["allow"] = error.allow
        named = msgspec.structs.replace(body, request_id=request_id)
        return JsonResponse(ErrorResponse(named), status, headers)
