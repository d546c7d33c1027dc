"""From an ASGI request to a response: authenticate, check limits, read, call, report errors."""

from __future__ import annotations

from functools import partial

import msgspec

from holdfast.api.errors import ErrorResponse, RequestError, error_body
from holdfast.api.responses import AuditEntry
from holdfast.http import requests
from holdfast.http.audit import Audit, detail_of
from holdfast.http.capacity import NO_KEY, BodyBytes, KeyUse, Turn
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import read_fields, read_query
from holdfast.http.permissions import Caller
from holdfast.http.refusals import ACTIONS
from holdfast.http.responses import (
    AnyResponse,
    EncodedResponse,
    Exchange,
    JsonResponse,
    Receive,
    Scope,
    Send,
    StreamResponse,
    encoded,
    send_response,
    send_stream,
)
from holdfast.http.service import Service
from holdfast.runtime.off_loop import off_loop
from holdfast.runtime.timeouts import Timeouts

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
        exchange = Exchange(scope, headers, request_id, receive, send)
        try:
            caller = await self._authenticated(endpoint, exchange)
        except Exception as error:  # noqa: BLE001  # every error becomes a response
            status = await send_response(exchange, self._refused(error, exchange))
        else:
            use = self._service.capacity.of(caller.key_id if endpoint.permission else NO_KEY)
            try:
                status = await self._serve_caller(endpoint, exchange, caller, use)
            finally:
                use.close()
        self._service.request_counts.add(endpoint.name, status, self._monotonic() - started)

    async def refuse(self, error: RequestError, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with an error to a request that matches no endpoint."""
        headers = dict(scope["headers"])
        exchange = Exchange(scope, headers, self._request_ids.of(headers), receive, send)
        await send_response(exchange, encoded(self._error_response(error, exchange.request_id)))

    async def _authenticated(self, endpoint: Endpoint, exchange: Exchange) -> Caller:
        """Return who calls, if the call is allowed."""
        service, headers = self._service, exchange.headers
        if service.authorize is not None:
            caller = await requests.authorized(
                service.authorize, endpoint.permission, exchange.scope
            )
        else:
            caller = await requests.authenticate(
                service.keys, service.hosts, endpoint.permission, headers
            )
        is_open = service.keys.is_empty or service.authorize is not None
        if is_open and exchange.scope["method"] not in SAFE_METHODS:
            requests.check_origin(service.origins, headers)
        service.key_limits.admit(caller)
        return caller

    async def _serve_caller(
        self, endpoint: Endpoint, exchange: Exchange, caller: Caller, use: KeyUse
    ) -> int:
        """Serve a request of a known caller; return the status."""
        turn, reserved = Turn(use), BodyBytes(use)
        try:
            call = Call(self._service, caller, use, exchange.receive)
            answer = await self._answer(endpoint, exchange, call, turn, reserved)
            if isinstance(answer, StreamResponse):
                turn.end()
                return await send_stream(exchange, answer, self._service.stopping)
            return await send_response(exchange, answer)
        finally:
            reserved.release()
            turn.end()

    async def _answer(
        self, endpoint: Endpoint, exchange: Exchange, call: Call, turn: Turn, reserved: BodyBytes
    ) -> EncodedResponse | StreamResponse:
        """Read a request, wait for its turn and handle it.

        Only the bytes of the response are returned: a client that reads slowly must not keep
        more in memory.
        """
        try:
            await self._read(endpoint, exchange, call, reserved)
            await turn.take()
            response = await self._handle(endpoint, call, exchange)
            if isinstance(response, StreamResponse):
                return response
            size = response.size if isinstance(response, JsonResponse) else 0
            answer = await off_loop(size, partial(encoded, response))
            reserved.add(len(answer.body), required=endpoint.method not in SAFE_METHODS)
        except Exception as error:  # noqa: BLE001  # every error becomes a response
            return self._refused(error, exchange)
        return answer

    async def _read(
        self, endpoint: Endpoint, exchange: Exchange, call: Call, reserved: BodyBytes
    ) -> None:
        scope = exchange.scope
        call.path, call.headers = scope["path_params"], exchange.headers
        call.query = read_query(scope["query_string"].decode("latin-1"), endpoint.query)
        if endpoint.takes_body:
            limits = self._limits.of(endpoint.body_bytes)
            call.body = await requests.read_body(
                exchange.headers, exchange.receive, limits, self._timeouts, reserved
            )
        if endpoint.body_fields is not None:
            read = partial(read_fields, call.body, endpoint.body_fields, call.path)
            call.fields = await off_loop(len(call.body), read)

    async def _handle(self, endpoint: Endpoint, call: Call, exchange: Exchange) -> AnyResponse:
        work = (
            self._audited(endpoint, call, exchange.scope, exchange.request_id)
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
        detail = partial(detail_of, call.body, self._service.app.redaction)
        entry = await audit.begin(
            call.caller,
            endpoint.name,
            target=scope["path"],
            detail=await off_loop(len(call.body), detail),
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

    def _refused(self, error: Exception, exchange: Exchange) -> EncodedResponse:
        """Return the response for an error; a refused call is counted for the audit log."""
        response = self._error_response(error, exchange.request_id)
        if response.status in ACTIONS:
            self._count_refusal(response.status, error, exchange.scope, exchange.request_id)
        return encoded(response)

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
