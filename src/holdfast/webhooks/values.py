"""Webhooks, the ends they want, and their deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

import msgspec

from holdfast.model.job import TERMINAL, Job, State
from holdfast.model.policy import DAY, HOUR, Backoff, BackoffKind
from holdfast.model.times import Instant

CALLBACK = "callback"
"""The webhook id of deliveries to an address that a job itself names."""
VARIABLE = "HOLDFAST_WEBHOOKS_ALLOW"
"""The variable that allows addresses where the code does not."""
ENDS = tuple(sorted(TERMINAL))


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How deliveries are made.

    ``allow`` lifts the rules that protect the internal network: ``http`` (not only https),
    ``ports`` (any port), ``private`` (any address), or a network such as ``10.0.0.0/8``.
    """

    allow: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=10)
    max_attempts: int = 12
    backoff: Backoff = Backoff(
        strategy=BackoffKind.EXPONENTIAL,
        initial_delay=timedelta(seconds=5),
        multiplier=3.0,
        max_delay=12 * HOUR,
        jitter=True,
    )
    lifetime: timedelta = 7 * DAY


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An address that receives ends; every given filter must match."""

    id: str
    url: str
    created_at: Instant
    states: tuple[State, ...] = ENDS
    types: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    tags: Mapping[str, str] = {}
    include_result: bool = False
    enabled: bool = True
    description: str = ""
    secrets: tuple[str, ...] = ()
    """Signing secrets, newest first; every delivery is signed with all of them."""

    def wants(self, end: End) -> bool:
        """Whether this end is delivered to the address."""
        job = end.job
        return (
            self.enabled
            and end.at >= self.created_at
            and end.state in self.states
            and (not self.types or job.type in self.types)
            and (not self.queues or job.queue in self.queues)
            and all(job.tags.get(name) == value for name, value in self.tags.items())
        )


class WebhookFilters(TypedDict, total=False):
    """The options of a new webhook."""

    states: Sequence[State | str]
    types: Sequence[str]
    queues: Sequence[str]
    tags: Mapping[str, str] | None
    include_result: bool
    description: str
    secret: str | None


class End(msgspec.Struct, frozen=True):
    """One end of one job; a job that is retried by hand may have several."""

    job: Job
    state: State
    at: datetime
    namespace: str = ""


class Message(msgspec.Struct, frozen=True):
    """The payload of a delivery job."""

    webhook: str
    message_id: str
    body: str
    url: str = ""
    proof: str = ""
    """An HMAC that only holdfast can make; without it a message is not sent."""


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to deliver."""

    at: datetime
    error: str | None = None
    code: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of one message; its id is that of its job."""

    id: str
    webhook: str
    job_id: str
    message_id: str
    state: State
    url: str
    created_at: datetime
    delivered_at: datetime | None = None
    next_attempt_at: datetime | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()


class DeliveryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries, newest first."""

    deliveries: tuple[Delivery, ...]
    next_cursor: str | None = None
