"""One server: connections, script calls, and errors in the store's words.

The client library's own retries are off: a script sent twice runs twice. So are its timeouts:
before Python 3.12 they may lose a cancellation, and a task that should have ended goes on for
ever. Calls are timed here; those that block have a connection of their own.
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
from holdfast.store.redis.scripts import HOT, library, script
from holdfast.store.redis.settings import RedisSettings

CONNECTIONS = 16
SENTINEL_PORT = 26379
ASK_SENTINEL = 0.5
"""Seconds for one sentinel to answer before the next one is asked."""
GRACE = timedelta(seconds=2)
"""How late the answer to a blocking call may be; later, its connection is taken to be dead."""
PASSING = (
    "OOM",
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
)
"""Beginnings of errors that go away by themselves."""
UNTAUGHT = "Function not found"
UNCALLABLE = ("unknown command 'FCALL'", "run the 'fcall' command")
"""What a server says that knows no functions, or may not run them for us."""
KEYLESS = frozenset({"PING", "TIME", "INFO", "CONFIG", "SCAN"})
"""Commands that name no key: on a cluster the node that has ours is asked."""

Value = str | bytes | int | float


class RedisClient:
    """Talks to one server, one cluster, or the master that sentinels name."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._redis: Redis | RedisCluster | None = None
        self._lines: Connections | None = None
        self._has_library = False
        """Whether hot verbs are functions of the server, as far as we know."""
        self._waiting: dict[str, Connections] = {}
        self._place: dict[str, Any] = {}
        self._sentinel: Sentinel | None = None
        self._route = ""

    @property
    def is_open(self) -> bool:
        return self._redis is not None

    async def open(self, route: str) -> None:
        """Connect; ``route`` is a key of the slot in which everything lives."""
        self._route = route
        with translated():
            if self._settings.cluster:
                await self._open_cluster()
            elif self._settings.sentinel:
                self._open_sentinel()
            else:
                self._redis = self._connected()
                self._lines = Connections(self._redis.connection_pool, CONNECTIONS)
                self._has_library = True
            await self.command("PING")

    async def close(self) -> None:
        """Let go of every connection."""
        lines = [*self._waiting.values(), *([self._lines] if self._lines else [])]
        held = [*([self._redis] if self._redis else [])]
        if self._sentinel is not None:
            held += self._sentinel.sentinels
        self._redis, self._lines, self._waiting, self._sentinel = None, None, {}, None
        for close in [*(each.close for each in lines), *(each.aclose for each in held)]:
            with contextlib.suppress(exceptions.RedisError, OSError):
                await close()

    async def command(self, *words: Value) -> Any:
        """Send one command."""
        if self._redis is None:
            raise StoreUnavailableError("the store is not started")
        with translated():
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                if isinstance(self._redis, RedisCluster) and words[0] in KEYLESS:
                    return await self._home(self._redis).execute_command(*words)
                return await self._redis.execute_command(*words)

    async def run(self, name: str, key: str, args: Sequence[Value]) -> Any:
        """Run the script of a verb; a server that does not know it yet is taught."""
        if self._has_library and name in HOT:
            function = library().functions[name]
            try:
                return await self._ask("FCALL", function, 1, key, *args)
            except UnknownScript:
                self._has_library = await self._load_library()
            except NoFunctions:
                self._has_library = False
            return await self.run(name, key, args)
        program = script(name)
        try:
            return await self._ask("EVALSHA", program.sha, 1, key, *args)
        except UnknownScript:
            return await self.command("EVAL", program.text, 1, key, *args)

    async def _load_library(self) -> bool:
        """Teach the server the functions; whether it may and can learn them."""
        try:
            await self.command("FUNCTION", "LOAD", "REPLACE", library().text)
        except StoreUnavailableError:
            raise
        except StoreError:
            return False
        return True

    async def _ask(self, *words: Value) -> Any:
        """Send a command whose answer needs no reading, the short way if there is one."""
        if self._lines is None:
            return await self.command(*words)
        with translated():
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                return await self._lines.ask(words)

    async def run_confirmed(self, name: str, key: str, args: Sequence[Value]) -> Any:
        """Run a script, then wait until its effects are as safe as the settings ask.

        The server counts what a connection wrote last, so all of it goes down one connection;
        the mark is written so that a repeat, which finds its jobs there, waits for them too.
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
        longest = settings.timeout + 2 * settings.confirm_within
        with translated():
            async with asyncio.timeout(longest.total_seconds()):
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
        if name not in self._waiting:
            self._waiting[name] = Connections(self._patient(name).connection_pool, CONNECTIONS)
        grace = wait + min(self._settings.timeout, GRACE)
        try:
            return await self._wait(grace, self._waiting[name], words)
        except StoreUnavailableError:
            await self._forget(name)
            raise

    async def _forget(self, name: str) -> None:
        """Drop a broken connection; the next call looks where the server is by then."""
        broken = self._waiting.pop(name, None)
        if broken is not None:
            with contextlib.suppress(exceptions.RedisError, OSError):
                await broken.close()
        if isinstance(self._redis, RedisCluster):
            node = self._home(self._redis)
            self._place = {"host": node.host, "port": node.port}

    async def _wait(self, grace: timedelta, lines: Connections, words: Sequence[Value]) -> Any:
        with translated():
            async with asyncio.timeout(grace.total_seconds()):
                return await lines.ask(words)

    def _connected(self, **more: Any) -> Redis:
        options = {**self._options(), **more}
        return Redis.from_pool(BlockingConnectionPool.from_url(self._settings.url, **options))

    def _patient(self, name: str) -> Redis:
        """Return a client for calls that block, under a name of its own."""
        more = {"client_name": name} if name else {}
        if self._sentinel is not None:
            options = {**self._place, **self._options(), **more}
            master: Redis = self._sentinel.master_for(self._settings.sentinel, **options)
            return master
        if self._settings.cluster:
            options = {**self._place, **self._options(), **more}
            return Redis.from_pool(BlockingConnectionPool(**options))
        return self._connected(**more)

    def _options(self) -> dict[str, Any]:
        return {
            "socket_timeout": None,
            "socket_connect_timeout": self._settings.timeout.total_seconds(),
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "max_connections": CONNECTIONS,
        }

    async def _open_cluster(self) -> None:
        options = self._options()
        del options["retry"]
        cluster = RedisCluster.from_url(self._settings.url, **options)
        self._redis = cluster
        async with asyncio.timeout(self._settings.timeout.total_seconds()):
            await cluster.initialize()
        node = self._home(cluster)
        self._place = {"host": node.host, "port": node.port}

    def _home(self, cluster: RedisCluster) -> ClusterNode:
        node = cluster.get_node_from_key(self._route)
        if node is None:
            raise StoreUnavailableError("no node of the cluster serves the prefix")
        return node

    def _open_sentinel(self) -> None:
        parts = urlsplit(self._settings.url)
        user, at, hosts = parts.netloc.rpartition("@")
        first, *others = hosts.split(",")
        where = dict(parse_url(urlunsplit(parts._replace(netloc=f"{user}{at}{first}"))))
        self._place = {name: where[name] for name in where if name not in ("host", "port")}
        asking = {
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": ASK_SENTINEL,
            "socket_timeout": ASK_SENTINEL,
        }
        addresses = [_address(host) for host in (first, *others)]
        self._sentinel = Sentinel(addresses, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]  # redis-py
        options = {**self._place, **self._options()}
        self._redis = self._sentinel.master_for(self._settings.sentinel, **options)


def _address(host: str) -> tuple[str, int]:
    """Read one of the sentinels that a URL names."""
    parts = urlsplit(f"//{host}")
    return parts.hostname or "localhost", parts.port or SENTINEL_PORT


class UnknownScript(StoreError):
    """The server has not seen a script or function yet."""


class NoFunctions(StoreError):
    """The server runs no functions for us."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Say in the store's words what went wrong."""
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


def _refusal(error: exceptions.ResponseError) -> StoreError:
    told = str(error)
    if told.startswith(UNTAUGHT):
        return UnknownScript(told)
    if any(words in told for words in UNCALLABLE):
        return NoFunctions(told)
    if told.startswith(PASSING) or isinstance(error, exceptions.ReadOnlyError):
        return StoreUnavailableError(f"redis: {told}")
    return StoreError(f"redis: {told}")
