"""The open connections of a server: how many, from where, and which of them only wait.

A server that is full closes the connection that waits longest for a request, so that silent
sockets never keep a client out. It refuses a new one only while all others are at work.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from holdfast.http.rejections import Rejections
from holdfast.model.policy import ConnectionLimits

KIBIBYTE = 1024
READ_BYTES = 64 * KIBIBYTE
"""How much one read takes from a socket at most."""


class ClientConnections:
    """Counts connections and finds the one to close when there are too many."""

    def __init__(
        self, limits: ConnectionLimits, rejections: Rejections, proxies: Sequence[str] = ()
    ) -> None:
        self.limits = limits
        self.header_timeout = limits.header_timeout.total_seconds()
        self.body_timeout = limits.body_timeout.total_seconds()
        self.write_timeout = limits.write_timeout.total_seconds()
        self.rejections = rejections
        self.buffer = memoryview(bytearray(READ_BYTES))
        """Every connection reads into it: reading and copying out is one step of the loop."""
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]
        self._open: Counter[str] = Counter()
        self._waiting: OrderedDict[Place, None] = OrderedDict()
        self._forwarded: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def admit(self, address: str) -> Place | None:
        """Return the place of a new connection; None when all others are at work."""
        source = "" if self._is_proxy(address) else network(address)
        reason = ""
        if source and self._open[source] >= self.limits.connections_per_address:
            reason, room = "connections of one address", self.make_room(source)
        elif len(self) >= self.limits.connections:
            reason, room = "connections", self.make_room()
        if reason:
            self.rejections.add(reason, address)
            if not room:
                return None
        self._open[source] += 1
        return Place(self, address, source)

    def make_room(self, source: str | None = None) -> bool:
        """Close the connection that waits longest, of one source or of all; False if none waits."""
        for place in self._waiting:
            if source is None or source == place.source:
                place.leave()
                place.evict()
                return True
        return False

    def waits(self, place: Place) -> None:
        """Record that a connection has no request now."""
        self._waiting[place] = None

    def works(self, place: Place) -> None:
        """Record that a request of a connection is served now."""
        self._waiting.pop(place, None)

    def left(self, place: Place) -> None:
        """Record that a connection is closed."""
        self._waiting.pop(place, None)
        self._open[place.source] -= 1
        if not self._open[place.source]:
            del self._open[place.source]

    @contextlib.contextmanager
    def request_of(self, address: str) -> Iterator[bool]:
        """Count a request that a proxy forwards; yield whether its address has room for it."""
        source = network(address)
        if self._forwarded[source] >= self.limits.connections_per_address:
            self.rejections.add("requests of one address", address)
            yield False
            return
        self._forwarded[source] += 1
        try:
            yield True
        finally:
            self._forwarded[source] -= 1
            if not self._forwarded[source]:
                del self._forwarded[source]

    def _is_proxy(self, address: str) -> bool:
        if not self._proxies:
            return False
        found = ipaddress.ip_address(address.partition("%")[0])
        return any(found in proxies for proxies in self._proxies)


class Place:
    """The place that one connection takes, until it leaves."""

    __slots__ = ("_connections", "_here", "address", "evict", "source")

    def __init__(self, connections: ClientConnections, address: str, source: str) -> None:
        self._connections = connections
        self._here = True
        self.address = address
        self.source = source
        self.evict: Callable[[], object] = lambda: None
        """Closes the connection."""

    def wait(self) -> None:
        """Record that the connection may be closed to make room."""
        if self._here:
            self._connections.waits(self)

    def work(self) -> None:
        """Record that the connection serves a request."""
        self._connections.works(self)

    def leave(self) -> None:
        """Give the place back, once."""
        if self._here:
            self._here = False
            self._connections.left(self)


@lru_cache(maxsize=1024)
def network(address: str) -> str:
    """Return the network that one client is taken to have: itself, or its 64 bits of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped:
        return str(getattr(found, "ipv4_mapped", None) or found)
    return str(ipaddress.ip_network((found, 64), strict=False))
