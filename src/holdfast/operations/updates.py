"""Changing the metadata of a submitted job."""

from __future__ import annotations

from holdfast.errors import Fault, ValidationError
from holdfast.model.amendment import (
    Amendment,
    JobMetadata,
    metadata_submission,
    read_amendment,
)
from holdfast.model.job import DamagedJob
from holdfast.model.results import UpdateResult, UpdateStatus
from holdfast.operations.changes import DECISIONS
from holdfast.operations.submitter import Submitter
from holdfast.store import Change, Store, Swapped


async def update(
    store: Store, submitter: Submitter, job_id: str, metadata: JobMetadata
) -> UpdateResult:
    """Check metadata like that of a submission; write it, or decide again if the job changed."""
    (given,) = await submitter.screened([metadata_submission(metadata)])
    amendment = read_amendment(given, store.now())
    if amendment.callback_url:
        await submitter.admission.expect_callbacks()
    (job,) = await store.get([job_id])
    if job is not None and amendment.tags:
        await submitter.admission.admit_names(tags=amendment.tags)
    for _ in range(DECISIONS):
        if job is None:
            return UpdateResult(job_id=job_id, status=UpdateStatus.NOT_FOUND)
        if isinstance(job, DamagedJob):
            raise ValidationError([Fault("job_id", "DAMAGED", f"cannot be read: {job.damage}")])
        if status := amendment.refused(job):
            return UpdateResult(job_id=job_id, status=status, state=job.state)
        after = amendment.applied(job)
        change = Change(job, after)
        if after is job or (answer := await _write(store, submitter, amendment, change)).written:
            return UpdateResult(job_id=job_id, status=UpdateStatus.UPDATED, state=job.state)
        job = answer.job
    raise RuntimeError(f"job keeps changing: {job_id}")  # pragma: no cover


async def _write(
    store: Store, submitter: Submitter, amendment: Amendment, change: Change
) -> Swapped:
    if faults := amendment.faults(change.before):
        raise ValidationError(faults)
    submitter.admission.checked(change.after)
    (answer,) = await store.amend([change])
    return answer
