"""Adding jobs, new ones and copies from another store.

Jobs of one batch mostly differ by id and payload only. What they share is encoded and sent once,
which is far cheaper than repeating it for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, StaleLeaseError, ValidationError
from holdfast.model.job import TERMINAL, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.redis import encode, fields
from holdfast.store.redis.connections import LARGE
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.redis.settings import correlation_index, dedupe_field, is_usable, tag_index
from holdfast.store.values import Added, AddStatus, Fence, JobExport

Params = dict[str, object]

_shared_values = attrgetter(
    *(name for name in Job.__struct_fields__ if name not in ("id", "payload"))
)


async def add(
    session: RedisSession, jobs: Sequence[Job], *, atomic: bool, fence: Fence | None
) -> list[Added]:
    """Add jobs; see ``Store.add``."""
    for job in jobs:
        if not is_usable(job.id):
            raise ValidationError([Fault("id", "RESERVED", f"cannot be {job.id!r:.60}")])
    await session.refresh()
    client, settings = session.client, session.settings
    run = client.run_confirmed if settings.confirms else client.run
    # As in session.call, which would be one more coroutine for every submission.
    moment = "" if session.clock is None else fields.micros(session.clock.now())
    common = (settings.prefix, moment, *session.constants)
    fenced = (fence.job_id, fence.token) if fence else ("", "")
    large: list[bytes] = []
    own = ("1" if atomic else "0", *fenced, pack(new_jobs(jobs, large)), *large)
    answers = await run("add", session.keys.jobs, (*common, *own))
    if answers == b"STALE":
        assert fence is not None
        raise StaleLeaseError(fence.job_id)
    return [
        Added(AddStatus.ACCEPTED, job.id) if answer == 1 else _added(*answer)
        for job, answer in zip(jobs, answers, strict=True)
    ]


async def adopt(session: RedisSession, exports: Sequence[JobExport]) -> list[bool]:
    """Add jobs with their history; see ``PortableStore.adopt``."""
    answers = await session.call("adopt", pack([exported_job(each) for each in exports]))
    return [bool(answer) for answer in answers]


def _added(
    status: bytes,
    job_id: bytes,
    missing: Sequence[bytes] = (),
    has_dependents: int = 0,
    deleted: int = 0,
) -> Added:
    return Added(
        AddStatus(status.decode()),
        job_id.decode(),
        missing=tuple(each.decode() for each in missing),
        has_dependents=bool(has_dependents),
        deleted=bool(deleted),
    )


def new_jobs(jobs: Sequence[Job], large: list[bytes]) -> list[Params]:
    """Return new jobs as ``add.lua`` receives them: plain ones that follow each other in groups.

    Large payloads are added to ``large``, and their numbers stand in their places.
    """
    found: list[Params] = []
    shared: tuple[object, ...] | None = None
    ids: list[str] = []
    payloads: list[msgspec.Raw | int] = []
    for job in jobs:
        last, shared = shared, _shared_values(job)
        if shared != last:
            if not _is_plain(job):
                shared = None
                found.append(new_job(job, _apart(job, large)))
                continue
            ids, payloads = [], []
            found.append({**_group(job), "ids": ids, "payloads": payloads})
        ids.append(job.id)
        payloads.append(_apart(job, large))
    return found


def _apart(job: Job, large: list[bytes]) -> msgspec.Raw | int:
    """Return the payload of a job; the number of one that is large enough to be sent by itself."""
    data = encode.payload_data(job.payload, job.encoding)
    if len(data) < LARGE:
        return encode.as_string(data)
    large.append(data)
    return len(large)


def _is_plain(job: Job) -> bool:
    """Whether a job is ready, has no links and no key, and is in no index of its own."""
    return job.state is State.SCHEDULED and not (
        job.depends_on
        or job.dedupe is not None
        or job.deduplication is not None
        or job.spawned_by
        or job.tags
        or job.correlation_id
        or job.held
    )


def _group(job: Job) -> Params:
    """Return what a plain new job shares with those that differ by id and payload only."""
    return {
        "queue": job.queue,
        "type": job.type,
        "level": job.priority,
        "now": "|".join(encode.now_values(job)),
        "created": str(fields.micros(job.created_at)),
        "fields": encode.shared_fields(job),
        "options": encode.options_around_id(job),
        "edges": [encode.edge_values(edge) for edge in job.trail],
    }


def new_job(job: Job, data: msgspec.Raw | int) -> Params:
    """Return one new job as ``add.lua`` receives it."""
    params: Params = {
        "id": job.id,
        "queue": job.queue,
        "type": job.type,
        "level": job.priority,
        "now": encode.now_values(job),
        "held": "1" if job.held else "",
        "created": str(fields.micros(job.created_at)),
        "fields": encode.new_fields(job, data),
        "edges": [encode.edge_values(edge) for edge in job.trail],
        "after": job.depends_on,
        "index": indexes_of(job),
    }
    if job.state is State.DELAYED and job.due_at is not None:
        params["due"] = fields.micros(job.due_at) // 1000
    if job.depends_on:
        params["kind"] = job.dependency_kind.value
    if job.limit_key:
        params["limit"] = job.limit_key
    if job.spawned_by:
        params["spawner"] = job.spawned_by
    if job.dedupe is not None:
        params["key"] = dedupe_field(job.dedupe.scope, job.dedupe.key)
        params["digest"] = job.dedupe.digest
        params["expires"] = fields.optional_micros(job.dedupe.expires_at)
    if job.deduplication is not None:
        params["de"] = encode.deduplication_options(job.deduplication)
    if trace := trace_of(job):
        params["trace"] = trace
    return params


def trace_of(job: Job) -> str:
    """Return what is deleted with a job, as JSON: its spawner, indexes and key; empty for none."""
    dedupe = job.dedupe
    trace: Params = {
        "spawner": job.spawned_by,
        "index": indexes_of(job),
        "key": dedupe and dedupe_field(dedupe.scope, dedupe.key),
    }
    named = {name: value for name, value in trace.items() if value}
    return msgspec.json.encode(named).decode() if named else ""


def indexes_of(job: Job) -> list[str]:
    """Return the names of the indexes that only some jobs are in."""
    found = [tag_index(name, value) for name, value in job.tags.items()]
    if job.correlation_id:
        found.append(correlation_index(job.correlation_id))
    return found


def exported_job(export: JobExport) -> Params:
    """Return a job with its history as ``adopt.lua`` receives it."""
    job = export.job
    data = encode.data_value(job)
    params = new_job(replace(job, trail=export.history), data)
    values: list[object] = [*encode.new_fields(job, data), *_past_fields(job)]
    if job.depends_on:
        values += ["hf:deps", msgspec.json.encode(job.depends_on).decode()]
    params["fields"] = values
    params["starts"] = job.lease_version
    params["token"] = job.lease.token if job.lease else ""
    params["lines"] = [encode.log_row(line) for line in export.logs[-MAX_LOG_LINES:]]
    if job.due_at is not None:
        params["due"] = fields.micros(job.due_at) // 1000
    if job.state in TERMINAL:
        params["finished"] = fields.micros(job.finished_at or job.updated_at) // 1000
    return params


def _past_fields(job: Job) -> list[object]:
    """Return the fields that claims, notes and the end of a job have written."""
    values: list[object] = ["atm", job.attempt - (job.state is State.RUNNING)]
    if job.lease is not None:
        values += ["ats", job.lease.version, "hf:tok", job.lease.token, "pb", job.lease.worker]
    if job.started_at is not None:
        values += ["processedOn", fields.micros(job.started_at) // 1000]
    if job.finished_at is not None:
        values += ["finishedOn", fields.micros(job.finished_at) // 1000]
    if job.state is State.COMPLETED:
        value, more = encode.result_values(job.result)
        values += ["returnvalue", value, *more]
    elif job.failure is not None:
        trace = msgspec.json.encode([job.failure.stack_trace or job.failure.message]).decode()
        values += ["failedReason", job.failure.message, "stacktrace", trace]
    if job.progress is not None:
        own, shown = fields.progress_values(job.progress)
        values += ["progress", shown, "hf:pg", own]
    if job.checkpoint is not None:
        values += ["hf:cp", encode.as_string(job.checkpoint)]
    return values
