"""Shares the service between keys: requests at once, bytes in flight, open streams and waits.

The flood of one key waits for its own turn, or is refused, and the requests of other keys are
served as usual. Each server process counts by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.api.errors import RequestError
from holdfast.errors import QuotaError
from holdfast.model.policy import SECOND, ServiceLimits

TURN_TIMEOUT = 30.0
"""Seconds that a request waits for its turn."""
NO_KEY = "-"
"""Callers of the routes that need no key, all together."""


class Capacity:
    """What each key uses now."""

    def __init__(self, limits: ServiceLimits | None = None) -> None:
        self.limits = limits or ServiceLimits()
        self.bytes = 0
        self.uses: dict[str, KeyUse] = {}
        """By the id of the key; only keys with open requests."""

    def of(self, key_id: str) -> KeyUse:
        """Return the use of a key, to which a request is added; ``close`` it with the request."""
        use = self.uses.get(key_id)
        if use is None:
            use = self.uses[key_id] = KeyUse(self, key_id)
        use.open_requests += 1
        return use

    def remove(self, key_id: str) -> None:
        """Forget a key without requests."""
        del self.uses[key_id]


class KeyUse:
    """What one key uses now."""

    def __init__(self, capacity: Capacity, key_id: str) -> None:
        self._capacity = capacity
        self._limits = capacity.limits
        self._key_id = key_id
        self.open_requests = 0
        self.bytes = 0
        self._handled = 0
        self._streams = 0
        self.long_polls = 0
        self._turns: deque[asyncio.Future[None]] = deque()

    def close(self) -> None:
        """End one request."""
        self.open_requests -= 1
        if not self.open_requests:
            self._capacity.remove(self._key_id)

    async def take_turn(self) -> None:
        """Wait until fewer requests of the key are handled than may be at once."""
        if self._handled < self._limits.requests_per_key and not self._turns:
            self._handled += 1
            return
        self._check("requests that wait for their turn", len(self._turns), "waiting_per_key")
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.end_turn()  # it was given at the same moment
            else:
                self._turns.remove(turn)
            if isinstance(error, TimeoutError):
                raise self._refusal("requests at once", self._handled, "requests_per_key") from None
            raise

    def end_turn(self) -> None:
        """Give the turn of a request to the next one."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._handled -= 1

    def begin_long_poll(self) -> None:
        """Count a request that waits; meanwhile another one has its turn."""
        self._check(
            "requests that wait for a job or for work", self.long_polls, "long_polls_per_key"
        )
        self.long_polls += 1
        self.end_turn()

    def end_long_poll(self) -> None:
        """Go on with a request that waited; it need not wait for its turn again."""
        self.long_polls -= 1
        self._handled += 1

    def open_stream(self) -> Callable[[], None]:
        """Count an event stream; return what ends it."""
        self._check("event streams", self._streams, "streams_per_key")
        self._streams += 1
        self.open_requests += 1

        def end() -> None:
            self._streams -= 1
            self.close()

        return end

    def check_bytes(self, size: int) -> None:
        """QuotaError when the key has so many bytes no more; a single body always passes."""
        limits, whole = self._limits, self._capacity
        if self.bytes + size > limits.bytes_per_key and self.bytes:
            raise self._refusal("bytes in flight", self.bytes, "bytes_per_key")
        if whole.bytes + size > limits.bytes and whole.bytes:
            raise RequestError("UNAVAILABLE", "too many bytes are in flight; repeat the call")

    def reserve(self, size: int) -> None:
        """Count bytes of a body; ``release`` them afterwards."""
        self.bytes += size
        self._capacity.bytes += size

    def release(self, size: int) -> None:
        """End the count of a body."""
        self.bytes -= size
        self._capacity.bytes -= size

    def _check(self, what: str, current: int, limit: str) -> None:
        if current >= getattr(self._limits, limit):
            raise self._refusal(what, current, limit)

    def _refusal(self, what: str, current: int, limit: str) -> QuotaError:
        return QuotaError(
            f"{what} of this key",
            current=current,
            maximum=getattr(self._limits, limit),
            retry_after=SECOND,
        )


class Turn:
    """The turn of one request."""

    __slots__ = ("_taken", "_use")

    def __init__(self, use: KeyUse) -> None:
        self._use = use
        self._taken = False

    async def take(self) -> None:
        """Wait for it."""
        await self._use.take_turn()
        self._taken = True

    def end(self) -> None:
        """Give it to the next request, if it was taken and has not ended."""
        if self._taken:
            self._taken = False
            self._use.end_turn()


class BodyBytes:
    """The bytes of one request and its response."""

    __slots__ = ("_size", "_use")

    def __init__(self, use: KeyUse) -> None:
        self._use = use
        self._size = 0

    def grow(self, size: int) -> None:
        """Reserve up to ``size`` bytes in all; QuotaError when the key has none left."""
        if size > self._size:
            self.add(size - self._size)

    def add(self, size: int, *, required: bool = False) -> None:
        """Reserve more bytes; those of a required response are only counted."""
        if not required:
            self._use.check_bytes(size)
        self._use.reserve(size)
        self._size += size

    def release(self) -> None:
        """Release all of them."""
        self._use.release(self._size)
        self._size = 0
