"""The settings of a job, and where each comes from: its submission, its task or its queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

import msgspec

from holdfast.model.job import DEFAULT_QUEUE, Job, Priority
from holdfast.model.policy import Backoff
from holdfast.model.profiles import PROFILES, STANDARD, Profile
from holdfast.model.reserved import QUEUE_PROFILES, TASKS
from holdfast.model.submission import Declaration
from holdfast.operations.declarations import declaration, profile, published
from holdfast.store import Store


class Origin(StrEnum):
    """Where a setting of a job comes from."""

    JOB = "JOB"
    """The submission gave it, or what was declared at that time, or a limit of the system."""
    TASK = "TASK"
    """It is what the task declares."""
    PROFILE = "PROFILE"
    """It is the default of the profile of the queue."""


class JobSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one setting, and its origin."""

    value: str | int | float | bool
    """Durations in seconds."""
    origin: Origin


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a job."""

    values: Mapping[str, JobSetting] = {}
    declared_by: str | None = None
    """The worker that published what the task declares, if any did."""
    profile: str = STANDARD.name
    """The profile under which the job was submitted."""


async def job_settings(store: Store, job: Job) -> JobSettings:
    """Return the settings of a job, compared with what its task and queue declare now."""
    found = (await published(store, TASKS, [job.type])).get(job.type)
    queue = profile((await published(store, QUEUE_PROFILES, [job.queue])).get(job.queue))
    declared = declaration(found) or Declaration()
    if queue is None or queue.name != job.profile:
        queue = PROFILES.get(job.profile, STANDARD)
    return JobSettings(
        values=_values(job, declared, queue),
        declared_by=found.worker if found else None,
        profile=job.profile,
    )


def _values(job: Job, declared: Declaration, queue: Profile) -> dict[str, JobSetting]:
    timeout = min(job.timeout, declared.timeout or job.timeout)
    rows: list[tuple[str, object, object, object]] = [
        ("queue", job.queue, declared.queue, DEFAULT_QUEUE),
        ("priority", job.priority, declared.priority, queue.priority),
        ("max_attempts", job.max_attempts, declared.max_attempts, queue.max_attempts),
        ("backoff", job.backoff, declared.backoff, queue.backoff),
        ("timeout", timeout, declared.timeout, queue.timeout),
        ("lifetime", job.lifetime, declared.lifetime, queue.lifetime),
        ("lease", job.lease_ttl, declared.lease, queue.lease),
        ("retry_timeouts", job.retry_timeouts, None if declared.retry_timeouts else False, True),
        ("retry_crashes", job.retry_crashes, None if declared.retry_crashes else False, True),
    ]
    return {
        name: JobSetting(value=_shown(name, value), origin=_origin(value, task, default))
        for name, value, task, default in rows
    }


def _origin(value: object, task: object, default: object) -> Origin:
    if task is not None:
        return Origin.TASK if value == task else Origin.JOB
    return Origin.PROFILE if value == default else Origin.JOB


def _shown(name: str, value: object) -> str | int | float | bool:
    match value:
        case timedelta():
            return value.total_seconds()
        case Backoff():
            return f"{value.strategy} from {value.initial_delay.total_seconds():g} s"
        case int() if name == "priority" and value in list(Priority):
            return Priority(value).name
        case bool() | int() | float():
            return value
        case _:
            return str(value)
