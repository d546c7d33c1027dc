"""What a route is: declared once, for the router, the permission matrix and the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.http.fields import Field, Schema
from holdfast.http.permissions import Caller, Permission
from holdfast.operations.operations import Operations

if TYPE_CHECKING:
    from holdfast.http.service import Service

T = TypeVar("T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]  # as ASGI has it

PATIENCE = 35.0
"""How long an answer may take, in seconds; submissions give up by themselves after 30."""


class Call:
    """One request, as a handler sees it."""

    __slots__ = (
        "body",
        "caller",
        "form",
        "headers",
        "operations",
        "path",
        "query",
        "receive",
        "service",
    )

    def __init__(
        self, service: Service, caller: Caller, operations: Operations, receive: Receive
    ) -> None:
        self.service = service
        self.caller = caller
        self.operations = operations
        self.receive = receive
        self.path: Mapping[str, str] = {}
        self.headers: Mapping[bytes, bytes] = {}
        self.query: dict[str, object] = {}
        self.form: dict[str, object] = {}
        self.body = b""

    @property
    def job_id(self) -> str:
        """The job in the path."""
        return self.path["job_id"]

    async def patiently(self, work: Coroutine[object, object, T]) -> T | None:
        """Await something long; None when the client left or the service stops meanwhile."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        ends = [loop.create_task(self._left()), loop.create_task(self._stops())]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, *ends):
                each.cancel()
            await asyncio.wait([task, *ends])

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _stops(self) -> None:
        await self.service.stopping.wait()


class Answer(msgspec.Struct, frozen=True):
    """A JSON answer."""

    body: object
    status: int = 200
    headers: Mapping[str, str] = {}


class Text(msgspec.Struct, frozen=True):
    """An answer that is not JSON."""

    body: bytes
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = {}


class Stream(msgspec.Struct, frozen=True):
    """An answer that goes on until the client leaves or the service stops."""

    chunks: AsyncIterator[bytes]
    media_type: str = "text/event-stream"


Handler = Callable[[Call], Awaitable[Answer | Text | Stream]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    permission: Permission | None
    """None: open to anyone who can reach the service."""
    query: tuple[Field, ...] = ()
    form: tuple[Field, ...] | None = None
    """The fields of its body, if it takes one."""
    body: Schema | None = None
    """The schema of a body that the handler reads by itself."""
    may_be_silent: bool = False
    """Whether such a body may be left out."""
    header: tuple[Field, ...] = ()
    example: object = None
    answer: type | None = None
    status: int = 200
    others: Mapping[int, str] = {}
    """Further successful statuses."""
    errors: tuple[str, ...] = ()
    """Codes of its own; those that any route may answer are added."""
    media_type: str = "application/json"
    audited: bool = False
    help: str = ""
    patience: float | None = PATIENCE
    """None: it takes as long as it takes."""

    @property
    def takes_body(self) -> bool:
        """Whether a body is read."""
        return self.form is not None or self.body is not None
