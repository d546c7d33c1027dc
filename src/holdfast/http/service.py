"""The ASGI application: from a request to a caller, a call, an answer, always in one shape."""

from __future__ import annotations

import asyncio
import gzip
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from holdfast.api.errors import APIError, ErrorResponse, Refusal, problem_of
from holdfast.app import Holdfast
from holdfast.http import requests
from holdfast.http.api_keys import ApiKeys
from holdfast.http.audit import Audit
from holdfast.http.docs import page
from holdfast.http.endpoint import Answer, Call, Endpoint, Stream, Text
from holdfast.http.event_stream import EventTail, streamed
from holdfast.http.fields import read_form, read_query
from holdfast.http.metrics import Counting
from holdfast.http.openapi import document
from holdfast.http.permissions import Caller
from holdfast.http.rate_limits import KeyLimits
from holdfast.observe import Observer, Silent
from holdfast.operations.operations import Operations
from holdfast.operations.waiter import JobWaiter
from holdfast.runtime.timeouts import Timeouts
from holdfast.store.tenants import TenantStore

Scope = MutableMapping[str, Any]  # as ASGI has it
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_VIEWS = 1000
WORTH_ZIPPING = 1400
"""Smaller answers fit into one packet anyway."""

_encoder = msgspec.json.Encoder()
_SAME_FOR_ALL = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON = (b"content-type", b"application/json")


class Service:
    """Everything that the routes share."""

    def __init__(
        self,
        app: Holdfast,
        *,
        observer: Observer | None = None,
        limits: requests.RequestLimits | None = None,
        hosts: Sequence[str] = (),
        endpoints: Sequence[Endpoint] = (),
    ) -> None:
        self.app = app
        self._monotonic = app.clock.monotonic
        self.observer = observer or Silent()
        self.limits = limits or requests.RequestLimits()
        self.hosts = frozenset(hosts)
        """Host names, besides those of this machine, by which it may be called without keys."""
        self.stopping = asyncio.Event()
        self.counting = Counting(app.clock)
        self.endpoints = tuple(endpoints)
        self.request_ids = requests.RequestIds(app.randomness)
        self._deadlines = Timeouts()
        self._views: OrderedDict[tuple[str, str], Operations] = OrderedDict()

    @cached_property
    def document(self) -> bytes:
        """The description of every route."""
        return _encoder.encode(document(self.endpoints))

    @cached_property
    def page(self) -> bytes:
        """The same for people."""
        return page(msgspec.json.decode(self.document))

    async def start(self) -> None:
        """Open the store and begin to know the keys."""
        await self.app.start()
        self.keys = ApiKeys(self.app.store, self.app.clock)
        self.key_limits = KeyLimits(self.app.store, self.app.clock)
        self.tail = EventTail(self.app.store)
        self._watcher = JobWaiter(self.app.store)
        await self.keys.refresh()

    async def close(self) -> None:
        """Finish what is under way and let go of the store."""
        self.stop()
        for operations in self._views.values():
            await operations.close()
        await self.tail.close()
        await self._watcher.close()
        await self.app.close()

    def stop(self) -> None:
        """Let streams and long waits end; what else is under way goes on."""
        self.stopping.set()

    def view(self, caller: Caller) -> Operations:
        """Return the operations as a caller may use them."""
        place = (caller.namespace, caller.key_id)
        found = self._views.get(place)
        if found is None:
            store = TenantStore(
                self.app.store, caller.namespace, stamp=caller.key_id, only_own=caller.only_own
            )
            found = self._views[place] = self.app.over(store, watcher=self._watcher)
            if len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        return found

    async def serve(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        request_id = self.request_ids.of(headers)
        begun = self._monotonic()
        answer: Answer | Text | Stream
        try:
            answer = await self._answer(endpoint, scope, headers, receive, request_id)
        except Exception as error:  # noqa: BLE001  # every one has an answer
            answer = self.refused(error, request_id)
        if isinstance(answer, Stream):
            status = 200
            await streamed(answer, request_id, self.stopping, receive, send)
        else:
            status = answer.status
            await respond(send, answer, request_id, headers.get(b"accept-encoding", b""))
        self.counting.count(endpoint.name, status, self._monotonic() - begun)

    async def _answer(
        self,
        endpoint: Endpoint,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        request_id: str,
    ) -> Answer | Text | Stream:
        caller = await requests.caller_of(self, endpoint, headers)
        self.key_limits.admit(caller)
        call = Call(self, caller, self.view(caller), receive)
        call.path, call.headers = scope["path_params"], headers
        call.query = read_query(scope["query_string"].decode("latin-1"), endpoint.query)
        if endpoint.takes_body:
            call.body = await requests.body_of(headers, receive, self.limits, self._deadlines)
        if endpoint.form is not None:
            call.form = read_form(call.body, endpoint.form)
        work = (
            self._audited(endpoint, call, scope, request_id)
            if endpoint.audited
            else endpoint.handler(call)
        )
        if endpoint.patience is None:
            return await work
        with self._deadlines.within(endpoint.patience):
            return await work

    async def _audited(
        self, endpoint: Endpoint, call: Call, scope: Scope, request_id: str
    ) -> Answer | Text | Stream:
        audit = Audit(call.operations.store)
        client = scope.get("client")
        entry = await audit.begin(
            call.caller,
            endpoint.name,
            target=scope["path"],
            detail=call.body,
            client=client[0] if client else "",
            id_=request_id,
        )
        try:
            answer = await endpoint.handler(call)
        except Exception as error:
            await audit.end(entry, problem_of(error)[0])
            raise
        await audit.end(entry, 200 if isinstance(answer, Stream) else answer.status)
        return answer

    def refused(self, error: BaseException, request_id: str) -> Answer:
        """Say what is wrong with a request, or tell the log what is wrong with us."""
        status, told = problem_of(error)
        if status == 500:
            self.observer.emit("http.failed", request_id=request_id, error=repr(error))
        headers = {}
        if told.retry_after:
            headers["retry-after"] = str(max(1, -int(-told.retry_after.total_seconds() // 1)))
        elif status == 503:
            headers["retry-after"] = "1"
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        if isinstance(error, Refusal) and error.allow:
            headers["allow"] = error.allow
        return Answer(ErrorResponse(_named(told, request_id)), status, headers)


def _named(error: APIError, request_id: str) -> APIError:
    return msgspec.structs.replace(error, request_id=request_id)


async def respond(send: Send, answer: Answer | Text, request_id: str, accepts: bytes) -> None:
    """Send a whole answer, zipped where that helps and is wanted."""
    if isinstance(answer, Text):
        body, media_type = answer.body, (b"content-type", answer.media_type.encode())
    else:
        body, media_type = _encoder.encode(answer.body), _JSON
    headers = [
        media_type,
        (b"x-request-id", request_id.encode()),
        *_SAME_FOR_ALL,
        *[(name.encode(), value.encode()) for name, value in answer.headers.items()],
    ]
    if len(body) >= WORTH_ZIPPING:
        headers.append((b"vary", b"accept-encoding"))
        if b"gzip" in accepts:
            body = (
                await asyncio.to_thread(gzip.compress, body, 5)
                if len(body) > 65_536
                else (gzip.compress(body, 5))
            )
            headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
