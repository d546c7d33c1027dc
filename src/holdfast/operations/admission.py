"""What a new job needs before it is written: a size that the store takes, and room in quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec.structs import replace

from holdfast.errors import QuotaError, ValidationError
from holdfast.model.acceptance import PlainSubmission
from holdfast.model.job import Job
from holdfast.model.policy import MEBIBYTE
from holdfast.model.reserved import CALLBACKS
from holdfast.operations.name_quota import NameQuota, Names, names_of
from holdfast.operations.quota import Quota
from holdfast.store import Added, AddStatus, RecordWrite, Store

SMALL_PAYLOAD = 5 * MEBIBYTE
"""Jobs with a payload up to this are never too large for a store, encrypted and encoded."""

Add = Callable[[Sequence[Job]], Awaitable[Sequence[Added]]]
"""Adds jobs, each by itself, where the caller adds them."""


class Admission:
    """Admits new jobs, or raises ``ValidationError`` or ``QuotaError``."""

    def __init__(
        self, store: Store, quota: Quota | None = None, names: NameQuota | None = None
    ) -> None:
        self._store = store
        self._quota = quota if quota is not None and quota.is_limited else None
        self._names = names
        self.is_limited = self._quota is not None or names is not None
        """Whether there is any quota to check."""
        self._has_callbacks = False
        """Whether the store has the record that jobs with a ``callback_url`` exist."""

    def admits(self, submission: PlainSubmission | None) -> bool:
        """Whether a submission needs no ``admit``: it has known names, and nothing else counts."""
        if self._quota is not None or self._names is None or submission is None:
            return False
        return self._names.knows(submission.template)

    def checked(self, job: Job) -> Job:
        """Return the job; ``ValidationError`` when it is too large for the store."""
        if len(job.payload) > SMALL_PAYLOAD:
            size_fault = self._store.capabilities.size_fault
            if size_fault is not None and (fault := size_fault(job, len(job.payload))):
                raise ValidationError([fault])
        return job

    def checked_each(self, jobs: Sequence[Job | ValidationError]) -> list[Job | ValidationError]:
        """Return jobs, with the error in place of one that is too large."""
        return [job if isinstance(job, ValidationError) else self._judged(job) for job in jobs]

    def _judged(self, job: Job) -> Job | ValidationError:
        try:
            return self.checked(job)
        except ValidationError as error:
            return error

    def applies_to(self, jobs: Sequence[Job]) -> bool:
        """Whether ``admit`` has anything to do for these jobs."""
        return self.is_limited or any(job.callback_url for job in jobs)

    async def admit(self, jobs: Sequence[Job], add: Add) -> Sequence[Job]:
        """Admit jobs, all or none; return those that count against the quotas.

        A job whose key another job holds needs no room. Only when there is not enough room for
        all, the keys are read. After the write, ``settle`` gives back what was not used.
        """
        if not self._has_callbacks and any(job.callback_url for job in jobs):
            await self.expect_callbacks()
        if self._names is not None:
            await self._names.admit(names_of(jobs))
        if self._quota is None:
            return ()
        try:
            await self._quota.admit(jobs)
        except QuotaError:
            new = await new_jobs(jobs, add)
            if len(new) == len(jobs):
                raise
            await self._quota.admit(new)
            return new
        return jobs

    async def admit_names(
        self,
        *,
        queue: str | None = None,
        tags: Collection[str] = (),
        type_: str | None = None,
    ) -> None:
        """QuotaError when a queue, tag or type without a new job is one name too many."""
        if self._names is not None:
            queues = () if queue is None else (queue,)
            types = () if type_ is None else (type_,)
            await self._names.admit(
                Names(queues=frozenset(queues), types=frozenset(types), tags=frozenset(tags))
            )

    async def expect_callbacks(self) -> None:
        """Record that jobs with a ``callback_url`` exist: else nobody looks for them."""
        since = self._store.now().isoformat().encode()
        await self._store.keep([RecordWrite(kind=CALLBACKS, key=CALLBACKS, data=since, version=0)])
        self._has_callbacks = True

    def settle(self, counted: Sequence[Job], jobs: Sequence[Job], added: Sequence[Added]) -> None:
        """Give back the room of jobs that were counted and not written."""
        if counted and self._quota is not None:
            written = {
                job.id
                for job, answer in zip(jobs, added, strict=True)
                if answer.status is AddStatus.ACCEPTED
            }
            self._quota.give_back([job for job in counted if job.id not in written])


async def new_jobs(jobs: Sequence[Job], add: Add) -> list[Job]:
    """Return the jobs whose key is free: no other job holds it, not even an earlier one of these.

    The store judges keys before dependencies, so a job that depends on itself is never written:
    it is MISSING when its key is free, and any other answer means that the key is held.
    """
    keyed = [job for job in jobs if _key_of(job) is not None]
    answers = await add([replace(job, depends_on=(job.id,)) for job in keyed]) if keyed else ()
    first: dict[object, str] = {}
    for job, answer in zip(keyed, answers, strict=True):
        if answer.status is AddStatus.MISSING:
            first.setdefault(_key_of(job), job.id)
    free = set(first.values())
    return [job for job in jobs if _key_of(job) is None or job.id in free]


def _key_of(job: Job) -> tuple[str, str, str] | None:
    """Return what at most one job may hold: an idempotency key or a deduplication id."""
    if job.dedupe is not None:
        return "key", job.dedupe.scope, job.dedupe.key
    if job.deduplication is not None:
        return "id", job.queue, job.deduplication.id
    return None
