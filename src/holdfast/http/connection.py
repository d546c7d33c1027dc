"""One connection: bounds what it sends before a request is known, and feeds uvicorn's parser.

The parser gets one message at a time. What a client sends beyond it stays unparsed, and is
bounded, until the response is complete: thousands of pipelined requests cost nothing.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any

import httptools
import msgspec
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from holdfast.api.errors import ErrorResponse, RequestError, error_body
from holdfast.http.connections import KIBIBYTE, ClientConnections, Place
from holdfast.model.policy import MEBIBYTE

HELD_BYTES = 16 * KIBIBYTE
"""How much of the next requests is kept while a response is under way."""
LINGER = 2.0
"""Seconds in which a refused client may read the response, before the connection is closed."""
DRAIN = 10.0
"""Seconds in which the rest of a body may arrive whose response is complete already."""
DRAIN_BYTES = 32 * MEBIBYTE
"""How much of it may arrive; twice the largest body that any route accepts."""
NEVER = float("inf")
_HEAD_END = b"\r\n\r\n"


class _Refused(Exception):
    """The message is refused while it is parsed."""

    def __init__(self, code: str, message: str, reason: str) -> None:
        self.error = RequestError(code, message)
        self.reason = reason


class Phase(Enum):
    """What a connection does."""

    HEAD = auto()
    """Waits for a request line and headers, or reads them."""
    BODY = auto()
    """Reads a body."""
    RESPONSE = auto()
    """The request is read; its response is not complete."""
    REFUSED = auto()
    """A refusal was sent; whatever arrives is dropped until the connection is closed."""


class ClientConnection(HttpToolsProtocol):
    """A connection whose head, body and response have limits and deadlines."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        connections: ClientConnections,
        place: Place,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._limits = connections.limits
        self._connections = connections
        self._rejections = connections.rejections
        self._place = place
        self._phase = Phase.HEAD
        self._head_bytes = 0
        self._tail = b""
        """The last bytes of an unfinished head, in which its end may have begun."""
        self._body_left: int | None = 0
        """Bytes of the body that are still to come; None when it is chunked."""
        self._held = b""
        self._drained = 0
        """Bytes that arrived for nothing since the last response."""
        self.deadline = NEVER
        """When the phase must be over, by the time of the loop."""
        self.write_deadline = NEVER

    # what the loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=16 * KIBIBYTE)
        self._place.evict = self.evict
        self._place.wait()
        self.deadline = self.loop.time() + self._connections.header_timeout

    def connection_lost(self, exc: Exception | None) -> None:
        self._place.leave()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self.write_deadline = self.loop.time() + self._connections.write_timeout
        super().pause_writing()

    def resume_writing(self) -> None:
        self.write_deadline = NEVER
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._phase is Phase.HEAD and not self._head_bytes:
            self.deadline = self.loop.time() + self._connections.header_timeout
        if self._is_answered() and not self._may_drain(len(data)):
            return
        at = 0
        while at < len(data) and not self.transport.is_closing():
            if self._phase is Phase.RESPONSE:
                self._hold(data[at:])
                return
            if self._phase is Phase.REFUSED:
                return
            end = self._message_end(data, at)
            self._parse(data[at:end])
            at = end

    def _is_answered(self) -> bool:
        """Whether what arrives now belongs to a message whose response is complete."""
        answered = self._phase is Phase.BODY and self.cycle.response_complete
        return answered or self._phase is Phase.REFUSED

    def _may_drain(self, size: int) -> bool:
        self._drained += size
        if self._drained <= DRAIN_BYTES:
            return True
        self._rejections.add("drained bytes", self._place.address)
        self.transport.abort()
        return False

    def expire(self, now: float) -> None:
        """Close a connection whose deadline has passed."""
        if now >= self.write_deadline:
            self._rejections.add("response not read", self._place.address)
            self.transport.abort()
        elif now >= self.deadline and self._phase is Phase.REFUSED:
            self.transport.abort()
        elif now >= self.deadline:
            self._late()

    def evict(self) -> None:
        """Close a connection that waits for a request, to make room for another one.

        At once: a descriptor that is kept for a slow client, or for the end of its TLS, is not
        there for the next one.
        """
        if self._phase is Phase.HEAD and self._head_bytes:
            late = RequestError("REQUEST_TIMEOUT", "the service needs the connection")
            self.transport.write(refusal(late))
        self.transport.abort()

    # the message in parts

    def _message_end(self, data: bytes, at: int) -> int:
        """Return where the part of the data ends that belongs to this message for certain."""
        if self._phase is Phase.HEAD:
            return self._head_end(data, at)
        return len(data) if self._body_left is None else min(len(data), at + self._body_left)

    def _head_end(self, data: bytes, at: int) -> int:
        if self._tail:
            seam = (self._tail + data[at : at + 3]).find(_HEAD_END)
            if seam >= 0:
                return at + seam + len(_HEAD_END) - len(self._tail)
        end = data.find(_HEAD_END, at)
        return len(data) if end < 0 else end + len(_HEAD_END)

    def _parse(self, part: bytes) -> None:
        try:
            if self._phase is Phase.HEAD:
                self._count_head(part)
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade:
            pass  # the response says what it is: the protocol stays HTTP
        except _Refused as refused:
            self._refuse(refused.error, refused.reason)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _Refused):
                self._refuse(cause.error, cause.reason)
            else:
                wrong = RequestError("INVALID_REQUEST", f"is not valid HTTP: {error}"[:200])
                self._refuse(wrong, "invalid HTTP")

    def _count_head(self, part: bytes) -> None:
        self._head_bytes += len(part)
        self._tail = (self._tail + part)[-3:]
        if self._head_bytes > self._limits.header_bytes:
            most = self._limits.header_bytes
            message = f"the request line and headers may have {most} bytes"
            raise _Refused("HEADERS_TOO_LARGE", message, "header bytes")

    def _hold(self, data: bytes) -> None:
        """Keep the beginning of the next request; one that sends too much is not served."""
        if len(self._held) + len(data) > HELD_BYTES:
            self._held = b""
            self.cycle.keep_alive = False
            self._phase = Phase.REFUSED
            self._rejections.add("pipelined bytes", self._place.address)
        else:
            self._held += data

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._phase is Phase.RESPONSE:  # behind a chunked body, in the same read
            raise _Refused("INVALID_REQUEST", "must wait for the response", "pipelined bytes")
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.target_bytes:
            message = f"path and query may have {self._limits.target_bytes} bytes"
            raise _Refused("URI_TOO_LONG", message, "target bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self._limits.headers:
            message = f"a request may have {self._limits.headers} headers"
            raise _Refused("HEADERS_TOO_LARGE", message, "headers")

    def on_headers_complete(self) -> None:
        self._check_message()
        super().on_headers_complete()
        self._phase = Phase.BODY
        self._head_bytes, self._tail = 0, b""
        named = dict(self.headers)
        chunked = b"transfer-encoding" in named
        self._body_left = None if chunked else int(named.get(b"content-length", b"0"))
        self.deadline = self.loop.time() + self._connections.body_timeout + LINGER
        self._place.work()

    def _check_message(self) -> None:
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1"):
            raise _Refused("INVALID_REQUEST", "must be HTTP/1.1 or HTTP/1.0", "invalid HTTP")
        if hosts > 1 or (not hosts and version == "1.1"):
            raise _Refused("INVALID_REQUEST", "must have one Host header", "invalid HTTP")

    def on_body(self, body: bytes) -> None:
        if self._body_left is not None:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.deadline = NEVER
        if self.cycle.response_complete:
            self._next_request()
        else:
            self._phase = Phase.RESPONSE

    # the response

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.cycle.body = bytearray()  # the part that arrived before a refusal
        if self._phase is Phase.RESPONSE:
            self._next_request()
        elif self._phase is Phase.BODY:
            self.deadline = min(self.deadline, self.loop.time() + DRAIN)
            self._place.wait()

    def _next_request(self) -> None:
        self._phase = Phase.HEAD
        self._drained = 0
        self._place.wait()
        held, self._held = self._held, b""
        if held:
            self.loop.call_soon(self._resume, held)

    def _resume(self, held: bytes) -> None:
        if not self.transport.is_closing():
            self.data_received(held)

    def _late(self) -> None:
        if self._phase is Phase.HEAD and not self._head_bytes:
            self._rejections.add("silence", self._place.address)
            self.transport.close()
        elif self._phase is Phase.HEAD:
            seconds = f"{self._connections.header_timeout:g} s"
            late = RequestError("REQUEST_TIMEOUT", f"headers must arrive within {seconds}")
            self._refuse(late, "header time")
        else:
            self._rejections.add("body time", self._place.address)
            self.transport.close()

    def _refuse(self, error: RequestError, reason: str = "") -> None:
        """Respond to a message that is no request, and close the connection a little later."""
        if reason:
            self._rejections.add(reason, self._place.address)
        started = self.cycle is not None and self.cycle.response_started
        under_way = self._phase in (Phase.BODY, Phase.RESPONSE)
        self._phase = Phase.REFUSED
        self._place.wait()
        self.deadline = self.loop.time() + LINGER
        if under_way and started:
            self.transport.close()
            return
        if under_way:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(refusal(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()


def refusal(error: RequestError) -> bytes:
    """Return a whole response that refuses a connection."""
    status, described = error_body(error)
    body = msgspec.json.encode(ErrorResponse(described))
    retry = "retry-after: 1\r\n" if status == 503 else ""
    return (
        f"HTTP/1.1 {status} {error.code}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n{retry}cache-control: no-store\r\n"
        "connection: close\r\n\r\n"
    ).encode() + body
