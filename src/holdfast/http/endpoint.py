"""A route: declared once for the router, the permissions and the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TypeVar

import msgspec

from holdfast.errors import QuotaError, UnauthorizedError
from holdfast.http.capacity import KeyUse
from holdfast.http.fields import Field, Schema
from holdfast.http.permissions import Caller, Permission
from holdfast.http.responses import AnyResponse, Receive, disconnected, stopped
from holdfast.http.service import Service
from holdfast.model.policy import MEBIBYTE
from holdfast.operations.operations import Operations

T = TypeVar("T")

LARGEST_BODY = 16 * MEBIBYTE + 65_536
"""Bytes: the largest payload that a store can be set to accept, and the fields around it."""
LONG_LISTS = 8 * MEBIBYTE
"""Bytes: a thousand of the longest ids, or the longest texts, however their JSON is escaped."""
RESPONSE_TIMEOUT = 35.0
"""How long a handler may take, in seconds; submissions stop by themselves after 30."""


class Call:
    """One request, as a handler sees it."""

    __slots__ = (
        "body",
        "caller",
        "fields",
        "headers",
        "operations",
        "path",
        "query",
        "receive",
        "service",
        "use",
    )

    def __init__(self, service: Service, caller: Caller, use: KeyUse, receive: Receive) -> None:
        self.service = service
        self.caller = caller
        self.use = use
        """What the key of the caller uses now."""
        self.operations: Operations = service.operations_for(caller)
        self.receive = receive
        self.path: Mapping[str, str] = {}
        self.headers: Mapping[bytes, bytes] = {}
        self.query: dict[str, object] = {}
        self.fields: dict[str, object] = {}
        """The declared fields of the body."""
        self.body = b""

    @property
    def job_id(self) -> str:
        """The job in the path."""
        return self.path["job_id"]

    async def while_connected(self, work: Coroutine[object, object, T]) -> T | None:
        """Await something long; None when the client disconnects or the service stops first.

        UnauthorizedError when the key of the caller ends first.
        """
        try:
            self.use.begin_long_poll()
        except QuotaError:
            work.close()
            raise
        try:
            return await self._first(work)
        finally:
            self.use.end_long_poll()

    async def _first(self, work: Coroutine[object, object, T]) -> T | None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        key_ended = loop.create_task(self.service.key_watch.ended(self.caller))
        ends = [
            key_ended,
            loop.create_task(disconnected(self.receive)),
            loop.create_task(stopped(self.service.stopping)),
        ]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            if key_ended.done() and not task.done():
                raise UnauthorizedError("the API key was revoked or has expired")
            return task.result() if task.done() else None
        finally:
            for each in (task, *ends):
                each.cancel()
            await asyncio.wait([task, *ends])


Handler = Callable[[Call], Awaitable[AnyResponse]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    name: str
    """The operation id in the OpenAPI document."""
    summary: str
    description: str = ""
    handler: Handler
    permission: Permission | None
    """None: no API key is needed."""
    query: tuple[Field, ...] = ()
    headers: tuple[Field, ...] = ()
    body_fields: tuple[Field, ...] | None = None
    """The fields of a JSON body that is read before the handler runs."""
    body_schema: Schema | None = None
    """The schema of a body that the handler reads itself."""
    body_bytes: int = MEBIBYTE
    """How large a body may be."""
    body_optional: bool = False
    """Whether a body with a schema may be empty."""
    example: object = None
    response: type | None = None
    status: int = 200
    other_statuses: Mapping[int, str] = {}
    """Further successful statuses and their meaning."""
    errors: tuple[str, ...] = ()
    """Error codes of this route; the codes that any route may return are added."""
    media_type: str = "application/json"
    audited: bool = False
    timeout: float | None = RESPONSE_TIMEOUT
    """Seconds that the handler may take; None: no limit."""

    @property
    def takes_body(self) -> bool:
        """Whether a body is read."""
        return self.body_fields is not None or self.body_schema is not None
