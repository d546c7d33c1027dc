"""What a caller may request of a new job, and the defaults of what it does not give."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import TypedDict, TypeGuard
from uuid import UUID

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.deduplication import Deduplication
from holdfast.model.job import (
    DEFAULT_QUEUE,
    DependencyKind,
    Encoding,
    Extra,
    Job,
    Priority,
    extra_document,
)
from holdfast.model.policy import Backoff, Limits, effective_timeout
from holdfast.model.profiles import STANDARD, Profile
from holdfast.model.removal import Removal
from holdfast.model.reserved import is_internal, refusal
from holdfast.model.times import Moment, Span

TYPE_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}", re.ASCII)
QUEUE_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
BULLMQ_NAME_RULE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,1024}")
"""What BullMQ accepts as the name of a job."""
BULLMQ_QUEUE_RULE = re.compile(r"[^:/\x00-\x1f\x7f\ud800-\udfff]{1,128}")
"""What BullMQ accepts as the name of a queue, except the slash, which separates tenants."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller may request of a new job. Only ``type`` is required."""

    type: str
    payload: object = None
    queue: str | None = None
    priority: Priority | str | int | None = None
    delay: Span | None = None
    scheduled_at: Moment | None = None
    hold: bool = False
    timeout: Span | None = None
    lifetime: Span | None = None
    lease: Span | None = None
    max_attempts: int | None = None
    backoff: Backoff | Mapping[str, object] | None = None
    retry_timeouts: bool | None = None
    retry_crashes: bool | None = None
    remove_on_complete: Removal | Mapping[str, object] | None = None
    remove_on_fail: Removal | Mapping[str, object] | None = None
    deduplication: Deduplication | Mapping[str, object] | None = None
    idempotency_key: str | None = None
    idempotency_window: Span | None = None
    correlation_id: str | None = None
    tags: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None
    depends_on: Sequence[str] = ()
    dependency_type: DependencyKind | str | None = None
    callback_url: str | None = None
    limit_key: str | None = None
    ref: str | None = None
    """A name by which other jobs of the same batch may depend on this one."""
    faults: tuple[Fault, ...] = ()
    """Faults found while the submission was read from outside."""


Misfit = Callable[[bytes, Encoding], str]
"""Returns why a payload does not fit the handler's function; an empty text when it does."""


class Declaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The defaults that a task declares for its jobs; workers publish them in the store."""

    queue: str | None = None
    priority: Priority | None = None
    timeout: timedelta | None = None
    lifetime: timedelta | None = None
    lease: timedelta | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    retry_timeouts: bool = True
    retry_crashes: bool = True
    version: int = 1
    """The version of the payloads."""


class Defaults(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What applies when a submission gives no value: the handler's options, then the profile's."""

    profile: Profile = STANDARD
    queue: str = DEFAULT_QUEUE
    priority: Priority | None = None
    timeout: timedelta | None = None
    lifetime: timedelta | None = None
    lease: timedelta | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    retry_timeouts: bool = True
    retry_crashes: bool = True
    version: int = 1
    limits: Limits = Limits()
    misfit: Misfit | None = None
    internal: bool = False
    """Whether holdfast itself submits, and may use its own names."""
    reserved_queues: frozenset[str] = frozenset()
    """Queues whose names the store needs for itself."""

    any_name: bool = False
    """Whether type and queue may have any name that BullMQ accepts."""
    removes_ended: bool = False
    """Whether the store keeps ended jobs as ``remove_on_complete`` and ``remove_on_fail`` say."""
    deduplicates: bool = False
    """Whether the store has BullMQ's deduplication."""
    encrypts: bool = False
    """Whether payloads are encrypted."""

    @property
    def type_rule(self) -> re.Pattern[str]:
        """What the type must match."""
        return BULLMQ_NAME_RULE if self.any_name else TYPE_RULE

    @property
    def queue_rule(self) -> re.Pattern[str]:
        """What the name of the queue must match."""
        return BULLMQ_QUEUE_RULE if self.any_name else QUEUE_RULE

    def name_faults(self, given: Mapping[str, object]) -> list[Fault]:
        """Return the faults of a type or queue whose name holdfast or the store uses itself."""
        type_, queue = str(given.get("type", "")), str(given.get("queue", self.queue))
        own = not self.internal
        taken = {"type": own and is_internal(type_), "queue": own and is_internal(queue)}
        taken["queue"] = taken["queue"] or queue in self.reserved_queues
        names = {"type": type_, "queue": queue}
        return [Fault(field, "RESERVED", refusal(names[field])) for field in taken if taken[field]]

    def fit_fault(self, payload: bytes, encoding: Encoding) -> Fault | None:
        """Return the fault of a payload that does not fit the handler's function."""
        why = self.misfit(payload, encoding) if self.misfit is not None else ""
        return Fault("payload", "INVALID", f"must fit the task: {why}") if why else None


def defaults_for(
    declared: Declaration,
    queue: str,
    *,
    profile: Profile,
    limits: Limits,
    misfit: Misfit | None = None,
) -> Defaults:
    """Return the defaults of a new job in a queue, which runs under a profile."""
    return Defaults(
        profile=profile,
        queue=queue,
        priority=declared.priority,
        timeout=declared.timeout,
        lifetime=declared.lifetime,
        lease=declared.lease,
        max_attempts=declared.max_attempts,
        backoff=declared.backoff,
        retry_timeouts=declared.retry_timeouts,
        retry_crashes=declared.retry_crashes,
        version=declared.version,
        limits=limits,
        misfit=misfit,
    )


class Parent(msgspec.Struct, frozen=True):
    """What a new job takes from one it depends on."""

    priority: int
    depth: int


class Spawner(msgspec.Struct, frozen=True):
    """The running job that submits this one, and the key that prevents a second copy of it."""

    job_id: str
    key: str
    extra: bytes | None = None
    """The plain fields of that job, which the new one inherits where it gives none."""

    @property
    def child_id(self) -> str:
        """The id of the new job: the same for the same key, so that a repeat is recognised."""
        named = f"{self.job_id}\0{self.key}".encode()
        return str(UUID(bytes=blake2b(named, digest_size=16).digest(), version=4))


@lru_cache(maxsize=256)
def default_job(defaults: Defaults) -> Job:
    """Return the job of a submission without any field, which a reader copies with changes."""
    profile = defaults.profile
    own = profile.timeout if defaults.timeout is None else None
    epoch = datetime.fromtimestamp(0, UTC)
    return Job(
        id="",
        type="",
        queue=defaults.queue,
        payload=b"null",
        encoding=Encoding.JSON,
        profile=profile.name,
        created_at=epoch,
        updated_at=epoch,
        expires_at=epoch,
        timeout=effective_timeout(own, defaults.timeout, defaults.limits.timeout),
        lease_ttl=defaults.lease or profile.lease,
        lifetime=defaults.lifetime or profile.lifetime,
        backoff=defaults.backoff or profile.backoff,
        retry_timeouts=defaults.retry_timeouts,
        retry_crashes=defaults.retry_crashes,
        priority=int(profile.priority if defaults.priority is None else defaults.priority),
        max_attempts=defaults.max_attempts or profile.max_attempts,
        extra=extra_document(Extra(version=defaults.version)),
    )


def named_jobs(depends_on: object) -> tuple[str, ...]:
    """Return the job names in a ``depends_on`` as it was given."""
    if not depends_on or not is_list(depends_on):
        return ()
    return tuple(name for name in depends_on if isinstance(name, str))


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a sequence but no string."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Whether a value is a mapping."""
    return isinstance(value, Mapping)


class SubmitOptions(TypedDict, total=False):
    """The keyword arguments of ``submit``: fields of ``Submission``. None means not given."""

    queue: str | None
    priority: Priority | str | int | None
    delay: Span | None
    scheduled_at: Moment | None
    hold: bool
    timeout: Span | None
    lifetime: Span | None
    lease: Span | None
    max_attempts: int | None
    backoff: Backoff | Mapping[str, object] | None
    retry_timeouts: bool | None
    retry_crashes: bool | None
    remove_on_complete: Removal | Mapping[str, object] | None
    remove_on_fail: Removal | Mapping[str, object] | None
    deduplication: Deduplication | Mapping[str, object] | None
    idempotency_key: str | None
    idempotency_window: Span | None
    correlation_id: str | None
    tags: Mapping[str, str] | None
    headers: Mapping[str, str] | None
    depends_on: Sequence[str]
    dependency_type: DependencyKind | str | None
    callback_url: str | None
    limit_key: str | None


Step = Submission | Sequence[Submission]
"""One job, or several that run in parallel."""


def chained(steps: Sequence[Step]) -> list[Submission]:
    """Return the submissions of a chain, each waiting for all jobs of the step before it.

    It also waits for everything that those jobs spawned (FAN_IN), after a single job as after a
    list.
    """
    linked: list[Submission] = []
    before: tuple[str, ...] = ()
    for number, step in enumerate(steps, 1):
        group = (step,) if isinstance(step, Submission) else tuple(step)
        if not group:
            raise ValidationError([Fault(f"steps[{number - 1}]", "REQUIRED", "must hold a job")])
        named = [_linked(job, f"{number}.{i}", before) for i, job in enumerate(group, 1)]
        before = tuple(job.ref for job in named if job.ref)
        linked += named
    return linked


def _linked(job: Submission, name: str, before: tuple[str, ...]) -> Submission:
    kind = DependencyKind.FAN_IN if before else None
    return msgspec.structs.replace(
        job,
        ref=job.ref or f"step {name}",
        depends_on=(*job.depends_on, *before),
        dependency_type=job.dependency_type or kind,
    )
