"""Writing decided changes, renewing leases, and keeping what running jobs report.

Completions of one batch mostly differ by id and result only, so what they share is sent once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter

from holdfast.model.job import LEASE_EXPIRED, TERMINAL, Failure, FailureCategory, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.redis import encode, fields
from holdfast.store.redis.decode import JobReply
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import Change, Fence, JobNote, Renewal, Swapped

WRITTEN = Swapped(written=True)
NULL = b"null"
PENDING_CHILDREN = b"PENDING_CHILDREN"

Params = dict[str, object]

_shared_values = attrgetter(
    *("queue", "type", "priority", "attempt", "revision", "updated_at", "due_at", "scheduled_at"),
    *("started_at", "finished_at", "expires_at", "lease", "trail"),
)


async def swap(session: RedisSession, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose jobs are still as decided upon; see ``Store.swap``."""
    answers = await session.call("swap", pack(change_params(changes)))
    return [WRITTEN if answer == 1 else _swapped(session, *answer) for answer in answers]


async def extend(session: RedisSession, fences: Sequence[Fence]) -> list[Renewal]:
    """Renew leases; see ``Store.extend``."""
    answers = await session.call("extend", pack([[f.job_id, f.token] for f in fences]))
    return [_renewal(answer) for answer in answers]


async def note(session: RedisSession, notes: Sequence[JobNote]) -> list[bool]:
    """Keep progress, checkpoints, log lines and payloads; see ``Store.note``."""
    answers = await session.call(
        "note", MAX_LOG_LINES, pack([_note_params(each) for each in notes])
    )
    return [bool(answer) for answer in answers]


def _swapped(
    session: RedisSession, written: int, answer: int | JobReply | None, *refusal: bytes
) -> Swapped:
    if written:
        return Swapped(written=True, has_dependents=bool(answer))
    assert not isinstance(answer, int)
    job = session.read(answer) if answer else None
    return Swapped(written=False, job=job, refused=_refused(*refusal) if refusal else None)


def _refused(code: bytes, text: bytes) -> Failure:
    """Return the failure of a job that BullMQ does not let complete: it retries some of them."""
    pending = code == PENDING_CHILDREN
    category = FailureCategory.TEMPORARY if pending else FailureCategory.PERMANENT
    return Failure(category=category, code=code.decode(), message=fields.text(text))


def _renewal(answer: tuple[bytes, bytes | None] | None) -> Renewal:
    if answer is None:
        return Renewal(held=False)
    until, rest = answer
    return Renewal(held=True, until=fields.instant(int(until)), cancel=fields.read_cancel(rest))


def change_params(changes: Sequence[Change]) -> list[Params]:
    """Return changes as ``swap.lua`` receives them: plain completions in groups."""
    found: list[Params] = []
    shared: object = None
    ids: list[str] = []
    values: list[str] = []
    for change in changes:
        before, after = change.before, change.after
        if change.until is not None or not _is_plain_completion(before, after):
            shared = None
            found.append(one_change(change))
            continue
        last, shared = shared, (_shared_values(after), before.revision, after.result == NULL)
        if shared != last:
            ids, values = [], []
            found.append({**_completion(before, after), "ids": ids, "values": values})
        ids.append(before.id)
        values.append(encode.result_values(after.result)[0])
    return found


def _is_plain_completion(before: Job, after: Job) -> bool:
    """Whether a job took one edge to COMPLETED with a JSON result, and nothing else changed."""
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
        and not encode.rest_changed(before, after)
        and (after.result is None or encode.is_json(after.result))
    )


def _completion(before: Job, after: Job) -> Params:
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
        "now": "|".join(encode.now_values(after)),
        "edge": encode.edge_text(edge, at),
        "atm": after.attempt,
        "finished": fields.micros(after.finished_at or after.updated_at) // 1000,
        "began": fields.micros(after.started_at),
        "at": at,
        "more": encode.result_values(after.result)[1],
    }


def one_change(change: Change) -> Params:
    """Return a change as ``swap.lua`` receives it."""
    before, after = change.before, change.after
    params: Params = {
        "id": before.id,
        "queue": before.queue,
        "rev": before.revision,
        "now": encode.now_values(after),
        "held": "1" if after.held else "",
        "state": after.state.value,
        "level": after.priority,
        "edges": [encode.edge_values(edge) for edge in after.trail],
        "atm": after.attempt - (after.state is State.RUNNING),
    }
    values: list[object] = ["atm", params["atm"]]
    if rest := encode.rest_value(before, after):
        values += ["hf:rest", rest]
    if before.lease and after.lease:
        params["token"] = before.lease.token
        if after.lease.token != before.lease.token:
            values += ["hf:tok", after.lease.token]
    if after.state in (State.RETRYING, State.DEAD_LETTER) and _is_lapse(after):
        params["lapsed"] = True
    if change.until is not None:
        params["until"] = fields.micros(change.until)
    if after.state is State.PENDING and before.state is State.RUNNING:
        params["kind"] = after.dependency_kind.value
    if after.trail or after.due_at != before.due_at:
        _add_move(after, before, params, values)
    params["fields"] = values
    return params


def _is_lapse(after: Job) -> bool:
    return any(edge.failure and edge.failure.code == LEASE_EXPIRED for edge in after.trail)


def _add_move(after: Job, before: Job, params: Params, values: list[object]) -> None:
    if after.due_at is not None:
        params["due"] = fields.micros(after.due_at) // 1000
        params["at_once"] = after.due_at <= after.updated_at
        params["delay"] = max(timedelta(0), after.due_at - after.updated_at) // fields.MILLISECOND
    if after.state in TERMINAL:
        _add_end(after, params, values)
    elif before.state in TERMINAL:
        params["drop"] = ["finishedOn", "processedOn", "failedReason", "returnvalue"]
    if after.failure is not None and any(edge.failure for edge in after.trail):
        failure = after.failure
        values += ["failedReason", failure.message]
        params["stack"] = failure.stack_trace or failure.message


def _add_end(after: Job, params: Params, values: list[object]) -> None:
    params["finished"] = fields.micros(after.finished_at or after.updated_at) // 1000
    if after.state is State.COMPLETED:
        params["value"], more = encode.result_values(after.result)
        values += more
    else:
        params["reason"] = after.failure.message if after.failure else after.state.value
        params["exhausted"] = after.attempt >= after.max_attempts


def _note_params(note: JobNote) -> Params:
    """Return a note as ``note.lua`` receives it."""
    params: Params = {"id": note.fence.job_id, "token": note.fence.token}
    if note.progress is not None:
        params["progress"], params["wire"] = fields.progress_values(note.progress)
    if note.checkpoint is not None:
        params["point"] = encode.as_string(note.checkpoint)
    if note.log is not None:
        params["line"] = encode.log_row(note.log)
    if note.payload is not None:
        params["data"] = encode.as_string(encode.payload_data(note.payload, note.encoding))
    return params
