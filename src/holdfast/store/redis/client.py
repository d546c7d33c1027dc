"""One server: connections, script calls, and its errors as errors of the store.

The client library's own retries are off, because a script sent twice runs twice. So are its
timeouts: before Python 3.12 they may lose a cancellation, and a task that should have ended runs
for ever. Calls have a timeout here; blocking calls have connections of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from holdfast.errors import StoreError, StoreUnavailableError, UnconfirmedError
from holdfast.store.redis.connections import Connections
from holdfast.store.redis.scripts import FREQUENT, library, script
from holdfast.store.redis.settings import RedisSettings

MAX_CONNECTIONS = 16
SENTINEL_PORT = 26379
SENTINEL_TIMEOUT = 0.5
"""Seconds for one sentinel to answer before the next one is tried."""
GRACE = timedelta(seconds=2)
"""How late a blocking call may return before its connection counts as dead."""
TRANSIENT = (
    "OOM",
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "UNBLOCKED",
)
"""First words of errors that pass without a change here."""
UNKNOWN_FUNCTION = "Function not found"
NO_FUNCTIONS = ("unknown command 'FCALL'", "run the 'fcall' command")
"""Errors of a server without functions, or of a user without the right to call them."""
KEYLESS = frozenset({"PING", "TIME", "INFO", "CONFIG", "SCAN"})
"""Commands without a key: on a cluster they go to the node that holds our keys."""

Value = str | bytes | int | float


class RedisClient:
    """A client of one server, of one cluster, or of the primary that sentinels name."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._redis: Redis | RedisCluster | None = None
        self._connections: Connections | None = None
        self._has_functions: bool | None = False
        """Whether the server runs the frequent verbs as functions; None until it was tried."""
        self._blocking: dict[str, Connections] = {}
        self._address: dict[str, Any] = {}
        self._sentinel: Sentinel | None = None
        self._routing_key = ""

    @property
    def is_open(self) -> bool:
        return self._redis is not None

    async def open(self, routing_key: str) -> None:
        """Connect; on a cluster all keys are in the slot of ``routing_key``."""
        self._routing_key = routing_key
        with translated():
            if self._settings.cluster:
                await self._open_cluster()
            elif self._settings.sentinel:
                self._open_sentinel()
            else:
                self._redis = self._new_client()
                self._connections = Connections(self._redis.connection_pool, MAX_CONNECTIONS)
                self._has_functions = None
            await self.command("PING")

    async def close(self) -> None:
        """Close every connection."""
        connections = [
            *self._blocking.values(),
            *([self._connections] if self._connections else []),
        ]
        clients = [*([self._redis] if self._redis else [])]
        if self._sentinel is not None:
            clients += self._sentinel.sentinels
        self._redis, self._connections, self._blocking, self._sentinel = None, None, {}, None
        for close in [*(each.close for each in connections), *(each.aclose for each in clients)]:
            with contextlib.suppress(exceptions.RedisError, OSError, RuntimeError):
                await close()

    async def command(self, *words: Value) -> Any:
        """Send one command."""
        if self._redis is None:
            raise StoreUnavailableError("the store is not started")
        with translated():
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                if isinstance(self._redis, RedisCluster) and words[0] in KEYLESS:
                    return await self._own_node(self._redis).execute_command(*words)
                return await self._redis.execute_command(*words)

    async def run(self, name: str, key: str, args: Sequence[Value]) -> Any:
        """Run a verb as a function of the server where possible, otherwise as a script."""
        if name in FREQUENT and self._has_functions is None:
            self._has_functions = await self._try_functions()
        if name not in FREQUENT or not self._has_functions:
            return await self._run_script(name, key, args)
        try:
            return await self._send("FCALL", library().functions[name], 1, key, *args)
        except (UnknownScript, NoFunctions):
            self._has_functions = None
        return await self.run(name, key, args)

    async def _try_functions(self) -> bool:
        """Load the library if need be; return whether the server runs its functions.

        Servers word a refusal differently, so any error counts. A function without effects is
        tried, because a verb that fails half way must not run again as a script.
        """
        probe = ("FCALL", library().probe, 0)
        try:
            with contextlib.suppress(UnknownScript):
                return bool(await self.command(*probe))
            await self.command("FUNCTION", "LOAD", "REPLACE", library().text)
            return bool(await self.command(*probe))
        except StoreUnavailableError:
            raise
        except StoreError:
            return False

    async def _run_script(self, name: str, key: str, args: Sequence[Value]) -> Any:
        """Run a script, and load it first when the server does not have it."""
        program = script(name)
        try:
            return await self._send("EVALSHA", program.sha, 1, key, *args)
        except UnknownScript:
            return await self.command("EVAL", program.text, 1, key, *args)

    async def _send(self, *words: Value) -> Any:
        """Send a command whose answer needs no conversion, on the fast connections if possible."""
        if self._connections is None:
            return await self.command(*words)
        with translated():
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                return await self._connections.send(words)

    async def run_confirmed(self, name: str, key: str, args: Sequence[Value]) -> Any:
        """Run a script, then wait until its writes are as safe as the settings require.

        WAIT covers the last write of its connection, so all commands use one connection. The
        counter is written so that a repeat, which finds its jobs stored, waits for them too.
        """
        program = script(name)
        try:
            return await self._confirmed(("EVALSHA", program.sha, 1, key, *args))
        except UnknownScript:
            return await self._confirmed(("EVAL", program.text, 1, key, *args))

    async def _confirmed(self, words: Sequence[Value]) -> Any:
        if not isinstance(self._redis, Redis):
            raise StoreUnavailableError("the store is not started")
        settings = self._settings
        millis = settings.confirm_within // timedelta(milliseconds=1)
        pipe = self._redis.pipeline(transaction=False)
        for each in (
            words,
            ("INCR", f"{settings.prefix}:hf:confirmed"),
            *([("WAIT", settings.replicas, millis)] if settings.replicas else []),
            *([("WAITAOF", 1, 0, millis)] if settings.fsync else []),
        ):
            pipe.execute_command(*each)
        timeout = settings.timeout + 2 * settings.confirm_within
        with translated():
            async with asyncio.timeout(timeout.total_seconds()):
                answer, _, *counts = await pipe.execute(raise_on_error=False)
            for each in (answer, *counts):
                if isinstance(each, Exception):
                    raise each
        reached = int(counts[0]) if settings.replicas else 0
        if reached < settings.replicas:
            raise UnconfirmedError(
                f"redis: written, but {reached} of {settings.replicas} replicas confirmed it within"
                f" {settings.confirm_within.total_seconds():g} s: a failover may lose it"
            )
        if settings.fsync and not int(counts[-1][0]):
            raise UnconfirmedError(
                "redis: written, but not on the server's disk within"
                f" {settings.confirm_within.total_seconds():g} s: a power failure may lose it"
            )
        return answer

    async def blocking(self, wait: timedelta, *words: Value, name: str = "") -> Any:
        """Send a command that blocks on the server for up to ``wait``, under a client name."""
        if self._redis is None:
            raise StoreUnavailableError("the store is not started")
        if name not in self._blocking:
            self._blocking[name] = Connections(
                self._new_blocking_client(name).connection_pool, MAX_CONNECTIONS
            )
        timeout = wait + min(self._settings.timeout, GRACE)
        try:
            return await self._send_within(timeout, self._blocking[name], words)
        except StoreUnavailableError:
            await self._drop(name)
            raise

    async def _drop(self, name: str) -> None:
        """Drop a broken connection; the next call looks up where the server is then."""
        broken = self._blocking.pop(name, None)
        if broken is not None:
            with contextlib.suppress(exceptions.RedisError, OSError, RuntimeError):
                await broken.close()
        if isinstance(self._redis, RedisCluster):
            node = self._own_node(self._redis)
            self._address = {"host": node.host, "port": node.port}

    async def _send_within(
        self, timeout: timedelta, connections: Connections, words: Sequence[Value]
    ) -> Any:
        with translated():
            async with asyncio.timeout(timeout.total_seconds()):
                return await connections.send(words)

    def _new_client(self, **more: Any) -> Redis:
        options = {**self._options(), **more}
        return Redis.from_pool(BlockingConnectionPool.from_url(self._settings.url, **options))

    def _new_blocking_client(self, name: str) -> Redis:
        """Return a client for blocking calls, under a name of its own."""
        more = {"client_name": name} if name else {}
        if self._sentinel is not None:
            options = {**self._address, **self._options(), **more}
            master: Redis = self._sentinel.master_for(self._settings.sentinel, **options)
            return master
        if self._settings.cluster:
            options = {**self._address, **self._options(), **more}
            return Redis.from_pool(BlockingConnectionPool(**options))
        return self._new_client(**more)

    def _options(self) -> dict[str, Any]:
        return {
            "socket_timeout": None,
            "socket_connect_timeout": self._settings.timeout.total_seconds(),
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "max_connections": MAX_CONNECTIONS,
        }

    async def _open_cluster(self) -> None:
        options = self._options()
        del options["retry"]
        cluster = RedisCluster.from_url(self._settings.url, **options)
        self._redis = cluster
        async with asyncio.timeout(self._settings.timeout.total_seconds()):
            await cluster.initialize()
        node = self._own_node(cluster)
        self._address = {"host": node.host, "port": node.port}

    def _own_node(self, cluster: RedisCluster) -> ClusterNode:
        node = cluster.get_node_from_key(self._routing_key)
        if node is None:
            raise StoreUnavailableError("redis: no node of the cluster serves the prefix")
        return node

    def _open_sentinel(self) -> None:
        parts = urlsplit(self._settings.url)
        user, at, hosts = parts.netloc.rpartition("@")
        first, *others = hosts.split(",")
        address = dict(parse_url(urlunsplit(parts._replace(netloc=f"{user}{at}{first}"))))
        self._address = {name: address[name] for name in address if name not in ("host", "port")}
        sentinel_options = {
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": SENTINEL_TIMEOUT,
            "socket_timeout": SENTINEL_TIMEOUT,
        }
        addresses = [_address(host) for host in (first, *others)]
        self._sentinel = Sentinel(addresses, sentinel_kwargs=sentinel_options)  # type: ignore[no-untyped-call]  # redis-py
        options = {**self._address, **self._options()}
        self._redis = self._sentinel.master_for(self._settings.sentinel, **options)


def _address(host: str) -> tuple[str, int]:
    """Return the address of a sentinel in the URL."""
    parts = urlsplit(f"//{host}")
    return parts.hostname or "localhost", parts.port or SENTINEL_PORT


class UnknownScript(StoreError):
    """The server does not have a script or function yet."""


class NoFunctions(StoreError):
    """The server runs no functions for this user."""


_BROKEN = (RuntimeError, AttributeError, EOFError)
"""What the client library and uvloop raise for a line that broke while they used it."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the client library as errors of the store."""
    try:
        yield
    except exceptions.NoScriptError as error:
        raise UnknownScript(str(error)) from None
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(f"redis: {type(error).__name__} {error}".strip()) from error
    except exceptions.RedisClusterException as error:
        raise StoreUnavailableError(f"redis: {error}") from error
    except exceptions.OutOfMemoryError as error:
        raise StoreUnavailableError(f"redis: OOM {error}") from error
    except exceptions.ResponseError as error:
        raise _refusal(error) from error
    except (*_BROKEN, exceptions.RedisError) as error:
        raise StoreUnavailableError(f"redis: {type(error).__name__} {error}".strip()) from error


def _refusal(error: exceptions.ResponseError) -> StoreError:
    message = str(error)
    if message.startswith(UNKNOWN_FUNCTION):
        return UnknownScript(message)
    if any(words in message for words in NO_FUNCTIONS):
        return NoFunctions(message)
    if message.startswith(TRANSIENT) or isinstance(error, exceptions.ReadOnlyError):
        return StoreUnavailableError(f"redis: {message}")
    return StoreError(f"redis: {message}")
