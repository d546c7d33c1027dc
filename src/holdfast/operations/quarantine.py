"""What was set aside so that the rest could go on, and which maintenance services fail.

Each report is a named lock with a text. It expires by itself when it is not repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.encryption.envelope import require_decrypted
from holdfast.errors import PermanentError, StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import DamagedJob, Failure, FailureCategory, Job, State
from holdfast.model.payload import clean
from holdfast.model.reserved import FAILING, QUARANTINE
from holdfast.operations.failure_groups import note_failures
from holdfast.operations.held import held
from holdfast.store import Change, NamedLock, Store, Swapped
from holdfast.store.damage import described

KEPT = timedelta(days=1)
"""How long an item stays in the list after it was last met."""
FAILING_FOR = timedelta(minutes=1)
"""How long a service counts as failing after its last error."""
LONGEST_NAME = 200
_HOLDER = "quarantine"
DAMAGED = "DAMAGED"
"""The failure code of a job that could not be read."""


class FaultReport(msgspec.Struct, frozen=True):
    """An item that was set aside, or a service that fails."""

    name: str
    error: str
    at: datetime
    """When it was last met."""


async def set_aside(store: Store, item: str, error: BaseException | str) -> None:
    """Record that an item was skipped, and why; an unavailable store loses the record."""
    text = error if isinstance(error, str) else described(error)
    with contextlib.suppress(Exception):  # the caller goes on with the other items
        name = QUARANTINE + clean(item, LONGEST_NAME)
        await store.lock(name, _HOLDER, KEPT, clean(text).encode())


async def quarantined(store: Store) -> list[FaultReport]:
    """Return what was set aside in the last day."""
    return [_report(lock, QUARANTINE, KEPT) for lock in await held(store, QUARANTINE, KEPT)]


async def report_failing(store: Store, service: str, error: BaseException | None) -> None:
    """Record that a maintenance service fails; without an error, that it works again."""
    with contextlib.suppress(Exception):  # the log has the error as well
        text, ttl = (described(error), FAILING_FOR) if error else ("", timedelta(0))
        await store.lock(FAILING + service, _HOLDER, ttl, clean(text).encode())


async def failing(store: Store) -> list[FaultReport]:
    """Return the maintenance services that fail again and again."""
    return [_report(lock, FAILING, FAILING_FOR) for lock in await held(store, FAILING, FAILING_FOR)]


async def swap_each(store: Store, changes: Sequence[Change]) -> list[Swapped | None]:
    """Write changes together, or one by one if that fails: None for one that was set aside."""
    if not changes:
        return []
    try:
        answers: list[Swapped | None] = list(await store.swap(changes))
    except StoreUnavailableError:
        raise
    except Exception:  # noqa: BLE001  # find out which one it is
        answers = [await _swap_alone(store, change) for change in changes]
    written = zip(changes, answers, strict=True)
    await note_failures(store, [c.after for c, answer in written if answer and answer.written])
    return answers


async def _swap_alone(store: Store, change: Change) -> Swapped | None:
    try:
        return (await store.swap([change]))[0]
    except StoreUnavailableError:
        raise
    except Exception as error:  # noqa: BLE001  # the others are written
        await set_aside(store, change.before.id, error)
        return None


def damage_failure(job: DamagedJob) -> Failure:
    """Return why a damaged job cannot run."""
    return Failure(
        category=FailureCategory.PERMANENT,
        code=DAMAGED,
        message=f"the stored job cannot be read: {job.damage}",
    )


async def without_damaged(store: Store, jobs: Sequence[Job]) -> list[Job]:
    """Fail the damaged ones of some claimed jobs; return the others."""
    damaged = [job for job in jobs if isinstance(job, DamagedJob)]
    for job in damaged:
        if job.state is State.RUNNING:  # else its state is damaged too
            failed = lifecycle.after_failure(job, damage_failure(job), now=store.now())
            await store.swap([Change(job, failed)])
            await note_failures(store, [failed])
        await set_aside(store, job.id, job.damage)
    return [job for job in jobs if not isinstance(job, DamagedJob)] if damaged else list(jobs)


async def without_encrypted(store: Store, jobs: Sequence[Job]) -> list[Job]:
    """Fail those claimed jobs for good that this process has no key for; return the others."""
    readable = []
    for job in jobs:
        try:
            require_decrypted(job.payload, "payload")
            require_decrypted(job.checkpoint, "checkpoint")
        except PermanentError as error:
            category = FailureCategory.PERMANENT
            failure = Failure(category=category, code=error.code, message=error.message)
            failed = lifecycle.after_failure(job, failure, now=store.now())
            await store.swap([Change(job, failed)])
            await note_failures(store, [failed])
        else:
            readable.append(job)
    return readable


def _report(lock: NamedLock, prefix: str, kept: timedelta) -> FaultReport:
    text = lock.data.decode("utf-8", "replace")
    return FaultReport(lock.name.removeprefix(prefix), text, lock.until - kept)
