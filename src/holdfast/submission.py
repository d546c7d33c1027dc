"""From what a caller asked for to a job, with every fault at once.

The id and the time come in as arguments, so accepting the same submission again gives the
same job and a repeated write is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast import lifecycle
from holdfast.dependencies import inherited_priority
from holdfast.errors import Fault, ValidationError
from holdfast.form import (
    MAX_KEY,
    QUEUE_RULE,
    TYPE_RULE,
    Defaults,
    Form,
    Parent,
    Spawner,
    Submission,
)
from holdfast.job import DependencyKind, Job

NO_DEFAULTS = Defaults()


def read(fields: Mapping[str, object]) -> Submission:
    """Make a submission from loose fields; unknown ones are refused by name."""
    faults = [
        Fault(name, "UNKNOWN_FIELD", _unknown(name))
        for name in fields
        if name not in Submission.__struct_fields__
    ]
    if "type" not in fields:
        faults.append(Fault("type", "REQUIRED", "is required"))
    if faults:
        raise ValidationError(faults)
    return Submission(**fields)  # type: ignore[arg-type]  # accept() checks every value


def accept(
    submission: Submission,
    *,
    job_id: str,
    now: datetime,
    defaults: Defaults = NO_DEFAULTS,
    parents: Mapping[str, Parent] | None = None,
    spawner: Spawner | None = None,
) -> Job:
    """Make a job of a submission, or raise ValidationError with everything that is wrong."""
    form = Form(submission, defaults, now)
    payload, encoding = form.payload()
    depends_on, depth, inherited = form.dependencies(parents or {})
    kind = DependencyKind.FAN_OUT if spawner else form.dependency_kind()
    lifetime = form.span("lifetime") or defaults.lifetime or defaults.profile.lifetime
    due_at = form.due_at(lifetime)
    fields = {
        "type": form.name("type", submission.type, TYPE_RULE),
        "queue": form.name("queue", submission.queue or defaults.queue, QUEUE_RULE),
        "timeout": form.timeout(),
        "lease_ttl": form.span("lease", low=0.1) or defaults.lease or defaults.profile.lease,
        "backoff": form.backoff(),
        "retry_timeouts": form.flag("retry_timeouts", defaults.retry_timeouts),
        "tags": form.tags(),
        "correlation_id": form.text("correlation_id", MAX_KEY),
        "callback_url": form.url(),
        "limit_key": form.text("limit_key", MAX_KEY),
        "dedupe": form.dedupe(payload, spawner),
        "priority": inherited_priority(form.priority(), inherited),
        "max_attempts": form.max_attempts(),
        "held": form.flag("hold", default=False),
    }
    form.finish()
    job = lifecycle.submitted(
        Job(
            id=job_id,
            payload=payload,
            encoding=encoding,
            profile=defaults.profile.name,
            created_at=now,
            updated_at=now,
            lifetime=lifetime,
            expires_at=now + lifetime,
            depends_on=depends_on,
            dependency_kind=kind,
            depth=depth,
            spawned_by=spawner.job_id if spawner else "",
            due_at=due_at,
            **fields,  # type: ignore[arg-type]  # each value was checked by its form method
        )
    )
    return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)


def _unknown(name: str) -> str:
    if name in ("id", "job_id"):
        return "must not be given: the system assigns it"
    return "is not a field of a submission"
