"""Jobs that BullMQ clients made, read with BullMQ's defaults; invalid values are replaced."""

from __future__ import annotations

import math
from datetime import timedelta

from holdfast.model.job import DependencyKind, Encoding, Failure, FailureCategory, Job, State
from holdfast.model.policy import Backoff, BackoffKind, CustomDelay
from holdfast.model.profiles import BULLMQ
from holdfast.model.times import CENTURY
from holdfast.store.redis.carrier import extra_in
from holdfast.store.redis.fields import (
    MILLISECOND,
    Now,
    Rest,
    Row,
    instant,
    mutable,
    number,
    parsed,
    read_now,
    read_rest,
    text,
    time,
)
from holdfast.store.redis.settings import FOREVER, ForeignTerms

STALL = "stalled"
MOST_ATTEMPTS = 10**9
"""A job of a BullMQ client that names more has so many."""


LONGEST_DELAY = timedelta(days=3650)
"""BullMQ limits no delay; a longer one is out of the range of its scores."""


class BullmqBackoff(Backoff, frozen=True, kw_only=True):
    """A backoff as BullMQ computes it: in whole milliseconds, with a random share."""

    share: float = 0.0
    """The part of the delay that is random, BullMQ's option ``jitter``."""
    stalls: bool = False
    """Whether the strategy is a function, without which BullMQ leaves the job until it stalls."""

    @property
    def needs_function(self) -> bool:
        return self.stalls

    def delay(
        self, attempt: int, *, jitter: float = 0.0, custom: CustomDelay | None = None
    ) -> timedelta:
        """Return the delay after failed ``attempt``, between ``1 - share`` and all of it."""
        longest = round(Backoff.delay(self, attempt, custom=custom) / MILLISECOND)
        drawn = longest * (1 - self.share) + longest * self.share * ((1 + jitter) / 2)
        return math.floor(drawn) * MILLISECOND


_AT_ONCE = Backoff(
    strategy=BackoffKind.CONSTANT, initial_delay=timedelta(0), max_delay=timedelta(0)
)


def read_job(job_id: str, queue: str, row: Row, terms: ForeignTerms) -> Job:
    """Read a job that a BullMQ client made; ValueError when its data is not JSON."""
    if row.data and row.data != b"null" and parsed(row.data) is None:
        raise ValueError(f"data must be JSON, got {text(row.data)!r:.60}")
    found = parsed(row.options or b"")
    options = found if isinstance(found, dict) else {}
    now = read_now(row)
    ended = now.state == State.COMPLETED.encode()
    created, expires = instant(int(now.created_at)), instant(int(now.expires_at))
    rest = read_rest(row.rest) if row.rest else Rest(max_attempts=1)
    return Job(
        id=job_id,
        type=text(row.name),
        queue=queue,
        payload=row.data or b"{}",
        encoding=Encoding.JSON,
        profile=BULLMQ.name,
        created_at=created,
        timeout=BULLMQ.timeout,
        lease_ttl=terms.lock_duration,
        lifetime=min(expires - created, FOREVER),
        backoff=backoff(options.get("backoff"), terms.unknown_backoff),
        max_attempts=max(_attempts(options.get("attempts")), rest.max_attempts),
        generation=rest.generation,
        dependency_kind=rest.kind or DependencyKind.AFTER,
        extra=extra_in(options.get("tm")),
        cancel=rest.cancel,
        failure=None
        if ended
        else rest.failure
        if _has_own_failure(now, rest)
        else failure(row, now),
        result=row.returnvalue if ended else None,
        **mutable(row, now),  # type: ignore[arg-type]  # one value per field of Job
    )


def _attempts(option: object) -> int:
    """Read BullMQ's attempts, which has no upper limit there."""
    return int(max(1, min(option, MOST_ATTEMPTS))) if isinstance(option, int | float) else 1


def _has_own_failure(now: Now, rest: Rest) -> bool:
    return rest.failure is not None and not now.foreign_failure


def backoff(option: object, unknown: str = "stall") -> Backoff:
    """Read BullMQ's backoff option; ``unknown`` replaces a strategy without a function here."""
    if isinstance(option, int | float):
        option = {"type": "fixed", "delay": option}
    if not isinstance(option, dict):
        return _AT_ONCE
    kind, given, share = option.get("type"), option.get("delay"), option.get("jitter")
    delay = _span(given) if isinstance(given, int | float) else MILLISECOND
    if kind not in _BUILT_IN:
        return _function_backoff(timedelta(0) if unknown == "none" else delay, unknown)
    return BullmqBackoff(
        strategy=_BUILT_IN[kind],
        initial_delay=delay,
        max_delay=max(delay, LONGEST_DELAY),
        share=max(0.0, min(float(share), 1.0)) if isinstance(share, int | float) else 0.0,
    )


_BUILT_IN = {"fixed": BackoffKind.CONSTANT, "exponential": BackoffKind.EXPONENTIAL}


def _function_backoff(delay: timedelta, unknown: str) -> Backoff:
    """Return the backoff of a strategy that is a function of the worker."""
    return BullmqBackoff(
        strategy=BackoffKind.CUSTOM,
        initial_delay=delay,
        max_delay=max(delay, LONGEST_DELAY),
        multiplier=1.0 if unknown == "fixed" else 2.0,
        stalls=unknown == "stall",
    )


def _span(milliseconds: float) -> timedelta:
    """Return a delay of BullMQ, limited to the range of ours."""
    return max(0.0, min(milliseconds, CENTURY / MILLISECOND)) * MILLISECOND


def failure(row: Row, now: Now) -> Failure | None:
    """Read why a BullMQ worker's attempt failed."""
    if row.failed_reason is None:
        return None
    stack = parsed(row.stacktrace or b"")
    message = text(row.failed_reason)
    stalled = STALL in message
    return Failure(
        category=FailureCategory.SYSTEM if stalled else FailureCategory.TEMPORARY,
        code="STALLED" if stalled else "",
        message=message,
        stack_trace=str(stack[-1]) if isinstance(stack, list) and stack else "",
        attempt=number(row.made),
        at=time(now.finished_at) or time(now.updated_at),
        worker=text(row.worker),
    )
