"""What jobs of one batch have in common is worked out, packed and read once.

Jobs that were submitted, claimed or completed together mostly differ by their id and what they
carry. Telling that is far cheaper than doing everything again for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from holdfast.model.job import Job, State
from holdfast.store.redis import params, wire
from holdfast.store.values import Change

NULL = b"null"
_kind = attrgetter(*(name for name in Job.__struct_fields__ if name not in ("id", "payload")))
_end = attrgetter(
    *("queue", "type", "priority", "attempt", "revision", "updated_at", "due_at", "scheduled_at"),
    *("started_at", "finished_at", "expires_at", "lease", "trail"),
)


def new_jobs(jobs: Sequence[Job]) -> list[dict[str, object]]:
    """Return new jobs as ``add.lua`` takes them: plain ones in a row that are alike together."""
    found: list[dict[str, object]] = []
    kind: tuple[object, ...] | None = None
    ids: list[str] = []
    payloads: list[msgspec.Raw] = []
    for job in jobs:
        last, kind = kind, _kind(job)
        if kind != last:
            if not _is_simply_ready(job):
                kind = None
                found.append(params.new_job(job))
                continue
            ids, payloads = [], []
            found.append({**params.group(job), "ids": ids, "payloads": payloads})
        ids.append(job.id)
        payloads.append(wire.packed_data(job))
    return found


def _is_simply_ready(job: Job) -> bool:
    """Whether a job is tied to no other, without a key, in no index of its own."""
    return job.state is State.SCHEDULED and not (
        job.depends_on
        or job.dedupe is not None
        or job.spawned_by
        or job.tags
        or job.correlation_id
        or job.held
    )


def changes(wanted: Sequence[Change]) -> list[dict[str, object]]:
    """Return changes as ``swap.lua`` takes them: plain completions that are alike together."""
    found: list[dict[str, object]] = []
    end: object = None
    ids: list[str] = []
    values: list[str] = []
    for change in wanted:
        before, after = change.before, change.after
        if change.until is not None or not _just_completed(before, after):
            end = None
            found.append(params.change(change))
            continue
        last, end = end, (_end(after), before.revision, after.result == NULL)
        if end != last:
            ids, values = [], []
            found.append({**params.completion(before, after), "ids": ids, "values": values})
        ids.append(before.id)
        values.append(wire.result_values(after.result)[0])
    return found


def _just_completed(before: Job, after: Job) -> bool:
    """Whether a job went along one edge and got a result that is JSON, and nothing else changed."""
    return (
        after.state is State.COMPLETED
        and before.state is State.RUNNING
        and len(after.trail) == 1
        and after.started_at is not None
        and before.lease is not None
        and after.lease is not None
        and before.lease.token == after.lease.token
        and before.priority == after.priority
        and not after.held
        and not wire.rest_changed(before, after)
        and (after.result is None or wire.is_json(after.result))
    )


def read_jobs(answers: Sequence[wire.Image | wire.Like], unknown_backoff: str) -> list[Job]:
    """Read jobs from a claim's answer; one that tells no more is like the one before."""
    found: list[Job] = []
    example: Job | None = None
    for answer in answers:
        if len(answer) == 2:
            assert example is not None
            job_id, data = answer
            payload = wire.payload(data or b"", example.encoding)
            found.append(replace(example, id=job_id.decode(), payload=payload))
        else:
            example = wire.read_job(answer, unknown_backoff)
            found.append(example)
    return found
