"""HTTP/1.1 over asyncio streams: kept-alive connections, whole answers and endless ones.

Just what a client of our own service needs, so that the core needs no HTTP package. A
connection that broke raises ``ConnectionLost``, which says whether the request was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import ServiceError, StoreUnavailableError

LINE = 1 << 20
LARGEST = 1 << 28
CONNECT = 10.0
IDLE = 20.0
"""How long an unused connection is trusted, in seconds: less than the service keeps it."""


class ConnectionLost(StoreUnavailableError):
    """The service could not be reached, or left in the middle of a call."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the service may have got the request."""


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.free_since = 0.0

    async def send(self, head: bytes, body: bytes) -> tuple[int, dict[str, str]]:
        """Send a request and return the head of the answer."""
        self.writer.write(head + body)
        await self.writer.drain()
        status_line = await self.reader.readuntil(b"\r\n")
        parts = status_line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise ServiceError(f"this is no HTTP: {status_line[:60]!r}")
        headers: dict[str, str] = {}
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(parts[1]), headers

    async def body(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the body of an answer, piece by piece."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\r\n")
        elif length := int(headers.get("content-length", "0")):
            if length > LARGEST:
                raise ServiceError(f"an answer of {length} bytes is too large")
            yield await self.reader.readexactly(length)

    def close(self) -> None:
        self.writer.close()


class Transport:
    """Calls one service; any number at a time."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        host = parts.netloc.rpartition("@")[2]
        self._headers = {"host": host, "accept": "application/json", **headers}
        self._free: list[_Connection] = []

    async def call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request and return the whole answer."""
        head = self._head(method, path, body, headers or {})
        while True:
            line, fresh = await self._line()
            try:
                status, answered = await line.send(head, body)
                data = b"".join([part async for part in line.body(answered)])
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
                line.close()
                if not fresh and isinstance(error, EOFError | ConnectionError):
                    continue  # it was closed while nobody used it
                raise ConnectionLost(f"{self._host} left: {error!r:.200}", sent=True) from error
            except BaseException:
                line.close()
                raise
            self._give_back(line, answered)
            return Response(status, answered, data)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Open an answer that goes on: its status, and its body piece by piece."""
        head = self._head("GET", path, b"", headers)
        line = await self._connected()
        try:
            status, answered = await line.send(head, b"")
            yield status, line.body(answered)
        except (OSError, EOFError, ValueError) as error:
            raise ConnectionLost(f"{self._host} left: {error!r:.200}", sent=True) from error
        finally:
            line.close()

    async def close(self) -> None:
        """Close every connection."""
        lines, self._free = self._free, []
        for line in lines:
            line.close()
        for line in lines:
            with contextlib.suppress(OSError):
                await line.writer.wait_closed()

    def _head(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        given = {**self._headers, **headers}
        if body:
            given |= {"content-type": "application/json", "content-length": str(len(body))}
        elif method == "POST":
            given["content-length"] = "0"
        lines = [f"{method} {self._prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header must not hold line breaks")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")

    async def _line(self) -> tuple[_Connection, bool]:
        now = asyncio.get_running_loop().time()
        while self._free:
            line = self._free.pop()
            if now - line.free_since < IDLE and not line.reader.at_eof():
                return line, False
            line.close()
        return await self._connected(), True

    async def _connected(self) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=LINE
                )
        except ssl.SSLCertVerificationError as error:  # and nothing changes by trying again
            told = (
                f"the certificate of {self._host}:{self._port} is refused: {error.verify_message}"
            )
            hint = "; SSL_CERT_FILE names a file with the authorities to trust"
            raise ServiceError(told + hint) from error
        except (OSError, TimeoutError) as error:
            told = f"{self._host}:{self._port} cannot be reached: {error!r:.200}"
            raise ConnectionLost(told, sent=False) from error
        return _Connection(reader, writer)

    def _give_back(self, line: _Connection, headers: Mapping[str, str]) -> None:
        if headers.get("connection", "").lower() == "close":
            line.close()
        else:
            line.free_since = asyncio.get_running_loop().time()
            self._free.append(line)
