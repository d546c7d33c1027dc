"""What a script is told: jobs and changes as lists and maps, packed."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.model.job import TERMINAL, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.redis import fields, wire
from holdfast.store.values import Change, JobExport, JobNote

pack = msgspec.msgpack.Encoder().encode


def group(job: Job) -> dict[str, object]:
    """Return what a plain new job shares with those that differ by id and payload only."""
    return {
        "queue": job.queue,
        "type": job.type,
        "level": job.priority,
        "now": "|".join(wire.now_values(job)),
        "created": str(fields.micros(job.created_at)),
        "fields": wire.shared_fields(job),
        "options": wire.options_around_id(job),
        "edges": [wire.edge_values(edge) for edge in job.trail],
    }


def new_job(job: Job) -> dict[str, object]:
    """Return one new job as ``add.lua`` takes it."""
    call: dict[str, object] = {
        "id": job.id,
        "queue": job.queue,
        "type": job.type,
        "level": job.priority,
        "now": wire.now_values(job),
        "held": "1" if job.held else "",
        "created": str(fields.micros(job.created_at)),
        "fields": wire.new_fields(job),
        "edges": [wire.edge_values(edge) for edge in job.trail],
        "after": job.depends_on,
        "index": _indexes(job),
    }
    if job.state is State.DELAYED and job.due_at is not None:
        call["due"] = fields.micros(job.due_at) // 1000
    if job.depends_on:
        call["kind"] = job.dependency_kind.value
    if job.limit_key:
        call["limit"] = job.limit_key
    if job.spawned_by:
        call["spawner"] = job.spawned_by
    if job.dedupe is not None:
        call["key"] = dedupe_key(job.dedupe.scope, job.dedupe.key)
        call["digest"] = job.dedupe.digest
        call["expires"] = fields.maybe(job.dedupe.expires_at)
    trace = {
        name: call[what]
        for name, what in (("spawner", "spawner"), ("index", "index"), ("key", "key"))
        if call.get(what)
    }
    if trace:
        call["trace"] = msgspec.json.encode(trace).decode()
    return call


def dossier(given: JobExport) -> dict[str, object]:
    """Return a job with its past as ``adopt.lua`` takes it."""
    job = given.job
    call = new_job(replace(job, trail=given.history))
    values: list[object] = [*wire.new_fields(job), *_past(job)]
    if job.depends_on:
        values += ["hf:deps", msgspec.json.encode(job.depends_on).decode()]
    call["fields"] = values
    call["starts"] = job.lease_version
    call["token"] = job.lease.token if job.lease else ""
    call["lines"] = [wire.log_row(line) for line in given.logs[-MAX_LOG_LINES:]]
    if job.due_at is not None:
        call["due"] = fields.micros(job.due_at) // 1000
    if job.state in TERMINAL:
        call["finished"] = fields.micros(job.finished_at or job.updated_at) // 1000
    return call


def _past(job: Job) -> list[object]:
    """What a job that was claimed, ended or spoke has in its hash."""
    values: list[object] = ["atm", job.attempt - (job.state is State.RUNNING)]
    if job.lease is not None:
        values += ["ats", job.lease.version, "hf:tok", job.lease.token, "pb", job.lease.worker]
    if job.started_at is not None:
        values += ["processedOn", fields.micros(job.started_at) // 1000]
    if job.finished_at is not None:
        values += ["finishedOn", fields.micros(job.finished_at) // 1000]
    if job.state is State.COMPLETED:
        value, more = wire.result_values(job.result)
        values += ["returnvalue", value, *more]
    elif job.failure is not None:
        trace = msgspec.json.encode([job.failure.stack_trace or job.failure.message]).decode()
        values += ["failedReason", job.failure.message, "stacktrace", trace]
    if job.progress is not None:
        own, seen = fields.progress_values(job.progress)
        values += ["progress", seen, "hf:pg", own]
    if job.checkpoint is not None:
        values += ["hf:cp", wire.packed(job.checkpoint)]
    return values


def dedupe_key(scope: str, key: str) -> str:
    """Return the field that stands for a deduplication key."""
    return f"{scope}\n{key}"


def tag_index(name: str, value: str) -> str:
    """Return the index of the jobs with a tag."""
    return f"g:{name}\n{value}"


def correlation_index(correlation_id: str) -> str:
    """Return the index of the jobs with a correlation id."""
    return f"r:{correlation_id}"


def _indexes(job: Job) -> list[str]:
    found = [tag_index(name, value) for name, value in job.tags.items()]
    if job.correlation_id:
        found.append(correlation_index(job.correlation_id))
    return found


def change(wanted: Change) -> dict[str, object]:
    """Return a decided change as ``swap.lua`` takes it."""
    before, after = wanted.before, wanted.after
    call: dict[str, object] = {
        "id": before.id,
        "queue": before.queue,
        "rev": before.revision,
        "now": wire.now_values(after),
        "held": "1" if after.held else "",
        "state": after.state.value,
        "level": after.priority,
        "edges": [wire.edge_values(edge) for edge in after.trail],
        "atm": after.attempt - (after.state is State.RUNNING),
    }
    values: list[object] = ["atm", call["atm"]]
    if rest := wire.rest_value(after, before):
        values += ["hf:rest", rest]
    if before.lease and after.lease:
        call["token"] = before.lease.token
        if after.lease.token != before.lease.token:
            values += ["hf:tok", after.lease.token]
    if wanted.until is not None:
        call["until"] = fields.micros(wanted.until)
    if after.trail:
        _moved(after, before, call, values)
    call["fields"] = values
    return call


def completion(before: Job, after: Job) -> dict[str, object]:
    """Return what a plain completion shares with those that differ by id and result only."""
    assert before.lease is not None
    assert after.started_at is not None
    (edge,) = after.trail
    at = fields.micros(edge.at)
    return {
        "queue": before.queue,
        "type": after.type,
        "level": after.priority,
        "rev": before.revision,
        "token": before.lease.token,
        "now": "|".join(wire.now_values(after)),
        "edge": wire.edge_text(edge, at),
        "atm": after.attempt,
        "finished": fields.micros(after.finished_at or after.updated_at) // 1000,
        "began": fields.micros(after.started_at),
        "at": at,
        "more": wire.result_values(after.result)[1],
    }


def _moved(after: Job, before: Job, call: dict[str, object], values: list[object]) -> None:
    if after.due_at is not None:
        call["due"] = fields.micros(after.due_at) // 1000
        call["at_once"] = after.due_at <= after.updated_at
    if after.state in TERMINAL:
        _ended(after, call, values)
    elif before.state in TERMINAL:
        call["drop"] = ["finishedOn", "processedOn", "failedReason", "returnvalue"]
    if after.failure is not None and any(edge.failure for edge in after.trail):
        failure = after.failure
        values += ["failedReason", failure.message]
        call["stack"] = failure.stack_trace or failure.message


def _ended(after: Job, call: dict[str, object], values: list[object]) -> None:
    ended = after.finished_at or after.updated_at
    call["finished"] = fields.micros(ended) // 1000
    if after.state is State.COMPLETED:
        call["value"], more = wire.result_values(after.result)
        values += more
    else:
        call["reason"] = after.failure.message if after.failure else after.state.value
        call["exhausted"] = after.attempt >= after.max_attempts


def note(wanted: JobNote) -> dict[str, object]:
    """Return a note as ``note.lua`` takes it."""
    call: dict[str, object] = {"id": wanted.fence.job_id, "token": wanted.fence.token}
    if wanted.progress is not None:
        call["progress"], call["wire"] = fields.progress_values(wanted.progress)
    if wanted.checkpoint is not None:
        call["point"] = wire.packed(wanted.checkpoint)
    if wanted.log is not None:
        call["line"] = wire.log_row(wanted.log)
    return call
