"""The numbers that govern a job: backoff, timeouts, retention, limits.

Values and arithmetic only. Randomness is an argument: ``jitter`` is a random number in
[-1, 1] from the caller, so tests pass 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar

import msgspec

from holdfast.errors import Fault
from holdfast.model.times import Span, parse_duration

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MEBIBYTE = 1024 * 1024

JITTER_SHARE = 0.1
MAX_ATTEMPTS = 100
BULLMQ_MULTIPLIER = 2.0
"""How the delays of BullMQ's exponential backoff grow."""

CustomDelay = Callable[[int, timedelta, timedelta], Span]
"""A handler's own backoff: ``(attempt, initial_delay, max_delay) -> timedelta or seconds``."""


class BackoffKind(StrEnum):
    """How the delay grows from one retry to the next."""

    CONSTANT = "CONSTANT"
    LINEAR = "LINEAR"
    EXPONENTIAL = "EXPONENTIAL"
    FULL_JITTER = "FULL_JITTER"
    CUSTOM = "CUSTOM"


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The delay before the next attempt, as a function of the attempt that failed."""

    strategy: BackoffKind = BackoffKind.EXPONENTIAL
    initial_delay: timedelta = SECOND
    max_delay: timedelta = HOUR
    multiplier: float = 2.0
    jitter: bool = False

    def delay(
        self, attempt: int, *, jitter: float = 0.0, custom: CustomDelay | None = None
    ) -> timedelta:
        """Return the delay after failed ``attempt`` (from 1), always within [0, max_delay].

        ``custom`` is the handler's function for CUSTOM; without one the delay grows
        exponentially. Raises what the function raises, and ValueError when it returns no delay.
        """
        if self.strategy is BackoffKind.CUSTOM and custom is not None:
            return self._capped(custom(attempt, self.initial_delay, self.max_delay))
        delay = self._growth(attempt)
        if self.strategy is BackoffKind.FULL_JITTER:
            return delay * ((1 + jitter) / 2)
        if self.jitter:
            return delay + min(delay * (JITTER_SHARE * jitter), self.max_delay - delay)
        return delay

    def _growth(self, attempt: int) -> timedelta:
        if self.strategy is BackoffKind.CONSTANT:
            return self._scaled(1)
        if self.strategy is BackoffKind.LINEAR:
            return self._scaled(attempt)
        if self.strategy is BackoffKind.FULL_JITTER:
            return self._scaled(self._power(attempt))
        return self._scaled(self._power(attempt - 1))

    def _power(self, exponent: int) -> float:
        try:
            return float(self.multiplier) ** exponent
        except OverflowError:
            return math.inf

    def _scaled(self, factor: float) -> timedelta:
        if not self.initial_delay:
            return timedelta(0)
        if factor >= self.max_delay / self.initial_delay:
            return self.max_delay
        return self.initial_delay * factor

    def _capped(self, given: Span) -> timedelta:
        delay = given if isinstance(given, timedelta) else parse_duration(given)
        return max(timedelta(0), min(delay, self.max_delay))

    @property
    def needs_function(self) -> bool:
        """Whether a job cannot be retried without the handler's own function."""
        return False

    def faults(self, field: str = "backoff") -> list[Fault]:
        """Return every rule this backoff breaks."""
        found: list[Fault] = []
        if self.initial_delay < timedelta(0):
            found.append(Fault(f"{field}.initial_delay", "OUT_OF_RANGE", "must not be negative"))
        if self.max_delay < self.initial_delay:
            found.append(
                Fault(f"{field}.max_delay", "OUT_OF_RANGE", "must not be below initial_delay")
            )
        if not 1.0 <= self.multiplier <= 1000.0:
            found.append(
                Fault(
                    f"{field}.multiplier",
                    "OUT_OF_RANGE",
                    f"must be between 1 and 1000, got {self.multiplier:g}",
                )
            )
        return found


def bullmq_faults(backoff: Backoff) -> list[Fault]:
    """Return the rules of the bullmq profile that a backoff breaks: Node could not follow it."""
    kinds = (BackoffKind.CONSTANT, BackoffKind.EXPONENTIAL)
    broken = {
        "strategy": backoff.strategy not in kinds and f"must be one of {', '.join(kinds)}",
        "initial_delay": not backoff.initial_delay and "must be longer than 0 s",
        "max_delay": backoff.max_delay > HOUR and "must be at most 3600 s",
        "multiplier": backoff.multiplier != BULLMQ_MULTIPLIER and "must be 2",
    }
    return [
        Fault(f"backoff.{name}", "OUT_OF_RANGE", f"{rule} under the profile bullmq")
        for name, rule in broken.items()
        if rule
    ]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the system allows, whatever a job or handler requests."""

    payload_bytes: int = MEBIBYTE
    timeout: timedelta = 30 * MINUTE
    submission_timeout: timedelta = 30 * SECOND
    idempotency_window: timedelta = DAY
    batch: int = 1000
    dependencies: int = 1000
    depth: int = 100
    queue_depth: int | None = None
    """How many jobs may wait in one queue; further submissions raise QuotaError."""
    submission_rate: int | None = None
    """How many jobs one app may submit per second."""

    MAX_PAYLOAD_BYTES: ClassVar[int] = 16 * MEBIBYTE

    def __post_init__(self) -> None:
        if not 0 < self.payload_bytes <= self.MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"payload_bytes must be between 1 and {self.MAX_PAYLOAD_BYTES},"
                f" got {self.payload_bytes}"
            )
        for name in ("queue_depth", "submission_rate"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended jobs are kept before they are pruned; None keeps them for ever."""

    completed: timedelta | None = 7 * DAY
    failed: timedelta | None = 30 * DAY
    dead_letter: timedelta | None = 90 * DAY
    cancelled: timedelta | None = 7 * DAY


def effective_timeout(*given: timedelta | None) -> timedelta:
    """Return the shortest of the given timeouts (job, handler, system)."""
    return min(timeout for timeout in given if timeout is not None)


def timeout_fault(timeout: timedelta, most: timedelta) -> Fault | None:
    """Return the fault of a timeout above the system's, which is refused rather than cut."""
    if timeout <= most:
        return None
    message = (
        f"must not exceed the system's {most.total_seconds():g} s (Limits.timeout),"
        f" got {timeout.total_seconds():g} s"
    )
    return Fault("timeout", "OUT_OF_RANGE", message)


def declared_backoff(given: Backoff | CustomDelay | None) -> Backoff | None:
    """Return the backoff a task declares; a function of its own is known to workers only."""
    if given is None or isinstance(given, Backoff):
        return given
    return Backoff(strategy=BackoffKind.CUSTOM)


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one key may use of a server process at a time, all keys, and the keys of a namespace."""

    requests_per_key: int = 64
    """Requests that are handled at once; further ones wait for their turn."""
    waiting_per_key: int = 1000
    """Requests that may wait for their turn."""
    streams_per_key: int = 100
    """Open event streams."""
    long_polls_per_key: int = 1000
    """Requests that wait for a job or for work."""
    bytes_per_key: int = 64 * MEBIBYTE
    """Bytes of bodies that are received, handled or sent."""
    bytes: int = 256 * MEBIBYTE
    """Bytes of bodies of all keys together."""
    queues_per_namespace: int = 1000
    """Names of queues; known ones remain in use when there are so many."""
    types_per_namespace: int = 1000
    """Names of job types."""
    tags_per_namespace: int = 1000
    """Names of tags."""
    workers_per_namespace: int = 1000
    """Names of workers over HTTP that are present."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection may take of a server before its key is known."""

    connections: int = 1000
    """Open connections; beyond that the one that waits longest for a request is closed."""
    connections_per_address: int = 250
    """From one IPv4 address, or one IPv6 network of 64 bits."""
    header_bytes: int = 32 * 1024
    """The request line and all headers."""
    target_bytes: int = 16 * 1024
    """Path and query."""
    headers: int = 100
    header_timeout: timedelta = 10 * SECOND
    """From the connection, or the first byte of a later request, to the end of its headers."""
    idle_timeout: timedelta = 30 * SECOND
    """Between two requests."""
    body_timeout: timedelta = 30 * SECOND
    """Within this time the whole body must arrive."""
    write_timeout: timedelta = 30 * SECOND
    """Within this time a client must read some of its response."""
