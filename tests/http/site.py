"""The service in this process, called without a network in between."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import time
import types
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast import Holdfast
from holdfast.http.api_keys import KeyTerms, Role
from holdfast.http.application import create_app
from holdfast.http.key_changes import create_key
from holdfast.runtime.randomness import Randomness
from holdfast.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Generator, Mapping

    from holdfast.http.service import Service
    from holdfast.store import Store

API = "/api/v1"


@dataclass
class Reply:
    """A whole response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]

    @property
    def fields(self) -> dict[str, str]:
        """The faults: field -> code."""
        return {one["field"]: one["code"] for one in self.json["error"]["details"]}


class Site:
    """A running service and calls to it."""

    def __init__(self, app: Holdfast, asgi: Any) -> None:
        self.app = app
        self.asgi = asgi
        self.service: Service = asgi.state.service

    @property
    def store(self) -> Store:
        return self.app.store

    async def key(self, role: Role | str, namespace: str = "", **terms: Any) -> str:
        """Create a key that is valid at once."""
        made = KeyTerms(name=f"{role} {namespace}", role=Role(role), namespace=namespace, **terms)
        _, secret = await create_key(self.store, made, Randomness())
        self.forget_keys()
        return secret

    def forget_keys(self) -> None:
        """Have the service read the keys again at once, not within a second."""
        self.service.keys._read_at = float("-inf")  # a clock of its own would serve one test

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.call("GET", path, **more)

    async def post(self, path: str, body: object = None, **more: Any) -> Reply:
        return await self.call("POST", path, body, **more)

    async def submit(self, type_: str = "a", payload: object = None, **more: Any) -> str:
        """Submit a job and return its id."""
        key = more.pop("key", None)
        body = {"type": type_, "payload": payload, **more}
        reply = await self.post(f"{API}/jobs", body, key=key)
        assert 201 == reply.status, reply.body
        return reply.json["job_id"]

    async def claim(self, key: str | None = None, **more: Any) -> list[dict[str, Any]]:
        body = {"worker_id": "w", **more}
        reply = await self.post(f"{API}/workers/claim", body, key=key)
        assert 200 == reply.status, reply.body
        return reply.json["jobs"]

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        raw: bytes | list[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        client: str = "127.0.0.1",
    ) -> Reply:
        """Send one request and return the whole response."""
        data = json.dumps(body).encode() if raw is None and body is not None else raw
        reply, parts = Reply(), []
        asked = self.exchange(method, path, data, key=key, headers=headers, client=client)
        async for message in asked:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {n.decode(): v.decode() for n, v in message["headers"]}
            else:
                parts.append(message.get("body", b""))
        reply.body = b"".join(parts)
        if reply.headers.get("content-encoding") == "gzip":
            reply.body = gzip.decompress(reply.body)
        return reply

    async def exchange(
        self,
        method: str,
        path: str,
        data: bytes | list[bytes] | None = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: str = "127.0.0.1",
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages that the service sends; closing early disconnects the client."""
        parts = [data or b""] if not isinstance(data, list) else data
        sent = [
            {"type": "http.request", "body": part, "more_body": n + 1 < len(parts)}
            for n, part in enumerate(parts)
        ]
        messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        disconnect = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop(0)
            await disconnect.wait()
            return {"type": "http.disconnect"}

        async def serve() -> None:
            try:
                asked = {**scope(method, path, key, headers), "client": (client, 5)}
                await watched(self.asgi(asked, receive, messages.put))
            finally:
                await messages.put(None)

        task = asyncio.create_task(serve())
        try:
            while (message := await messages.get()) is not None:
                yield message
        finally:
            disconnect.set()
            await task


LONGEST_STEP = 0.05
"""Seconds of processor time that a request may take of the loop at once."""


@types.coroutine
def watched(work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Run a request; fail when it keeps the event loop for too long.

    Processor time of this thread, not time on the clock: a busy machine changes nothing. Garbage
    is collected between the steps: what all tests of the process keep is not the request's.
    """
    give, value = work.send, None
    while True:
        began = time.thread_time()
        gc.disable()
        try:
            waits_for = give(value)
        except StopIteration:
            return
        finally:
            gc.enable()
            took = time.thread_time() - began
            assert took <= LONGEST_STEP, f"a request blocked the event loop for {took:.3f} s"
        try:
            value, give = (yield waits_for), work.send
        except BaseException as error:  # noqa: BLE001  # the request's to handle
            value, give = error, work.throw


def scope(
    method: str, path: str, key: str | None, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    parts = urlsplit(path)
    sent = {"host": "localhost", "content-type": "application/json", **(headers or {})}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(n.encode(), v.encode("utf-8")) for n, v in sent.items()],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
    }


@asynccontextmanager
async def running(app: Holdfast | None = None, **options: Any) -> AsyncIterator[Site]:
    """Run the service over an app, by default one in memory."""
    app = app or Holdfast(store=MemoryStore())
    asgi = create_app(app, **options)
    async with asgi.router.lifespan_context(asgi):
        yield Site(app, asgi)
