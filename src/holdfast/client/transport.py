"""HTTP/1.1 over asyncio streams: keep-alive connections, whole responses and streams.

It does just what a client of the service needs, so that the core needs no HTTP package. A broken
connection raises ``ConnectionLost``, which records whether the request was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import ServiceError, StoreUnavailableError

MAX_LINE = 1 << 20
MAX_RESPONSE = 1 << 28
CONNECT_TIMEOUT = 10.0
MAX_IDLE = 20.0
"""How long an idle connection is reused, in seconds; the service closes it after 30."""


class ConnectionLost(StoreUnavailableError):
    """The service cannot be reached, or closed the connection during a call."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the service may have received the request."""


class ServiceResponse(msgspec.Struct, frozen=True):
    """A whole response."""

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
        """Send a request; return the status and the headers of the response."""
        self.writer.write(head + body)
        await self.writer.drain()
        status_line = await self.reader.readuntil(b"\r\n")
        parts = status_line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise ServiceError(f"the response is not HTTP: {status_line[:60]!r}")
        headers: dict[str, str] = {}
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(parts[1]), headers

    async def body(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the body of a response, piece by piece."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\r\n")
        elif length := int(headers.get("content-length", "0")):
            if length > MAX_RESPONSE:
                raise ServiceError(f"a response may have {MAX_RESPONSE} bytes, got {length}")
            yield await self.reader.readexactly(length)

    def close(self) -> None:
        self.writer.close()


class Transport:
    """Calls one service; any number of calls at a time."""

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
    ) -> ServiceResponse:
        """Send a request and return the whole response."""
        head = self._head(method, path, body, headers or {})
        while True:
            connection, is_new = await self._free_or_new()
            try:
                status, headers_received = await connection.send(head, body)
                data = b"".join([part async for part in connection.body(headers_received)])
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
                connection.close()
                if not is_new and isinstance(error, EOFError | ConnectionError):
                    continue  # the service closed it while it was idle
                raise _broken(self._host, error) from error
            except BaseException:
                connection.close()
                raise
            self._reuse(connection, headers_received)
            return ServiceResponse(status, headers_received, data)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Open a streamed response: its status, and its body piece by piece."""
        head = self._head("GET", path, b"", headers)
        connection = await self._connect()
        try:
            status, headers_received = await connection.send(head, b"")
            yield status, connection.body(headers_received)
        except (OSError, EOFError, ValueError) as error:
            raise _broken(self._host, error) from error
        finally:
            connection.close()

    async def close(self) -> None:
        """Close every connection."""
        connections, self._free = self._free, []
        for connection in connections:
            connection.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()

    def _head(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        sent = {**self._headers, **headers}
        if body:
            sent |= {"content-type": "application/json", "content-length": str(len(body))}
        elif method == "POST":
            sent["content-length"] = "0"
        lines = [f"{method} {self._prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header must not contain line breaks")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")

    async def _free_or_new(self) -> tuple[_Connection, bool]:
        now = asyncio.get_running_loop().time()
        while self._free:
            connection = self._free.pop()
            if now - connection.free_since < MAX_IDLE and not connection.reader.at_eof():
                return connection, False
            connection.close()
        return await self._connect(), True

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=MAX_LINE
                )
        except ssl.SSLCertVerificationError as error:  # a retry cannot help
            message = (
                f"the certificate of {self._host}:{self._port} is refused: {error.verify_message}"
                "; SSL_CERT_FILE names a file with the authorities to trust"
            )
            raise ServiceError(message) from error
        except (OSError, TimeoutError) as error:
            message = f"{self._host}:{self._port} cannot be reached: {error!r:.200}"
            raise ConnectionLost(message, sent=False) from error
        return _Connection(reader, writer)

    def _reuse(self, connection: _Connection, headers: Mapping[str, str]) -> None:
        if headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            connection.free_since = asyncio.get_running_loop().time()
            self._free.append(connection)


def _broken(host: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"{host} closed the connection: {error!r:.200}", sent=True)
