"""From what a caller asked for to a job, with every fault at once.

The id and the time come in as arguments, so accepting the same submission again gives the
same job and a repeated write is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast import lifecycle
from holdfast.errors import Fault, ValidationError
from holdfast.form import Defaults, Parent, Spawner, Submission
from holdfast.intake import Intake
from holdfast.job import Job
from holdfast.payload import clean
from holdfast.timing import shown

NO_DEFAULTS = Defaults()
NO_PARENTS: Mapping[str, Parent] = {}
FIELDS = frozenset(Submission.__struct_fields__) - {"faults"}


def read(fields: Mapping[str, object]) -> Submission:
    """Make a submission from loose fields.

    Nothing is refused here: what is wrong with the names travels in ``faults`` and is
    raised by ``accept`` together with what is wrong with the values.
    """
    if not isinstance(fields, Mapping):
        raise ValidationError([Fault("job", "INVALID", f"must be an object, got {shown(fields)}")])
    known = {name: value for name, value in fields.items() if name in FIELDS}
    faults = [_unknown(name) for name in fields if name not in FIELDS]
    if "type" not in known:
        faults.append(Fault("type", "REQUIRED", "is required"))
    elif not isinstance(known["type"], str):
        given = shown(known["type"])
        faults.append(Fault("type", "INVALID", f"must be a string, got {given}"))
    if any(fault.field == "type" for fault in faults):
        known["type"] = ""
    return Submission(**known, faults=tuple(faults))  # type: ignore[arg-type]  # accept() checks


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
    intake = Intake(submission, defaults, now, parents or NO_PARENTS)
    job = lifecycle.submitted(intake.job(job_id, spawner))
    return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)


def _unknown(name: object) -> Fault:
    field = clean(name, 60) if isinstance(name, str) else shown(name)
    if name in ("id", "job_id"):
        return Fault(field, "UNKNOWN_FIELD", "must not be given: the system assigns it")
    return Fault(field, "UNKNOWN_FIELD", "is not a field of a submission")
