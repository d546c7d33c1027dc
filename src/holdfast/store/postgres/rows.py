"""Jobs as rows and rows as jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec
import psycopg
from msgspec.structs import replace
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format
from psycopg.rows import TupleRow
from psycopg.types.composite import RecordBinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from holdfast.model.job import (
    CancelRequest,
    DedupeKey,
    DependencyKind,
    Encoding,
    Event,
    Failure,
    Job,
    Lease,
    Progress,
    State,
    Transition,
)
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.store.damage import salvaged
from holdfast.store.postgres import arrays
from holdfast.store.values import Claim

_RECORD = 2249


class _Jsonb(Loader):
    """The binary form begins with a version byte."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]


def adapters() -> AdaptersMap:
    """Return how values are sent and received; msgspec reads JSON."""
    made = AdaptersMap(psycopg.adapters)
    arrays.register(made)
    made.register_loader("json", ByteaBinaryLoader)
    made.register_loader("jsonb", _Jsonb)
    made.register_loader("record", ByteaBinaryLoader)
    return made


class Instants(dict[bytes | None, datetime | None]):
    """Instants by their form in ``timestamptz_send``; null stays null."""

    def __missing__(self, data: bytes | None) -> datetime | None:
        at = self[data] = None if data is None else arrays.instant(data)
        return at


_loader = RecordBinaryLoader(_RECORD, adapters())


@lru_cache(maxsize=16)  # several readers of one row come one after the other
def record_of(data: bytes) -> TupleRow:
    """Return the values of a ``ROW``."""
    return _loader.load(data)


Row = TupleRow
"""A row of any statement: only the statement knows the types of its columns."""

WIDTH: Final = 38
"""How many columns ``columns.sql`` lists."""

TURN, NUMBER, PLACE = range(3)
"""The columns of ``claim.sql`` about the claim itself."""
ID, PAYLOAD, CREATED_AT, SCHEDULED_AT, EXPIRES_AT = range(3, 8)
"""The columns in which jobs of one claim nearly always differ."""
KIND, DEPENDS_ON = 8, 14
"""The first of the columns in which they are mostly alike, and one of those."""

_encode = msgspec.json.Encoder().encode
_dedupe_of = msgspec.json.Decoder(DedupeKey).decode
_cancel_of = msgspec.json.Decoder(CancelRequest).decode
_progress_of = msgspec.json.Decoder(Progress).decode
failure_of = msgspec.json.Decoder(Failure).decode
_tags_of = msgspec.json.Decoder(dict[str, str]).decode
_states: Mapping[str, State] = {state.value: state for state in State}
_events: Mapping[str, Event] = {event.value: event for event in Event}
_NO_TAGS: Mapping[str, str] = {}


class Policy(msgspec.Struct, frozen=True):
    """What jobs of one kind have in common; a few documents that recur.

    A field that a document omits has the default given here. These defaults are part of the
    format: they stay even if the defaults of a submission change.
    """

    encoding: Encoding = Encoding.JSON
    profile: str = "standard"
    timeout: timedelta = timedelta(minutes=30)
    lease_ttl: timedelta = timedelta(seconds=30)
    lifetime: timedelta = timedelta(days=7)
    backoff: Backoff = Backoff(
        strategy=BackoffKind.EXPONENTIAL,
        initial_delay=timedelta(seconds=1),
        max_delay=timedelta(hours=1),
        multiplier=2.0,
        jitter=False,
    )
    retry_timeouts: bool = True
    retry_crashes: bool = True


_DEFAULTS = msgspec.structs.asdict(Policy())


@lru_cache(maxsize=1024)
def _policy_json(*fields: object) -> bytes:
    given = zip(_DEFAULTS, fields, strict=True)
    return _encode({name: value for name, value in given if value != _DEFAULTS[name]})


def policy_json(job: Job) -> bytes:
    """Return the part of a job that it shares with its kind, as JSON."""
    return _policy_json(
        job.encoding,
        job.profile,
        job.timeout,
        job.lease_ttl,
        job.lifetime,
        job.backoff,
        job.retry_timeouts,
        job.retry_crashes,
    )


_policy_of = lru_cache(maxsize=1024)(msgspec.json.Decoder(Policy).decode)


def document(value: object) -> bytes | None:
    """Return a value as JSON; None for None."""
    return None if value is None else _encode(value)


def job_of(row: Row) -> Job:
    """Read a job from the columns of ``columns.sql``, as a damaged one if some are unreadable."""
    try:
        return _job_of(row)
    except Exception as error:  # noqa: BLE001  # whatever a program wrote into the table
        return salvaged(row[:WIDTH], _VALID, _job_of, error)


def _job_of(row: Sequence[Any]) -> Job:
    (
        id_, type_, queue, payload, policy, created_at, tags, correlation_id,
        callback_url, limit_key, dedupe, depends_on, kind, depth, spawned_by, extra,
        state, revision, priority, max_attempts, attempt, generation, held,
        updated_at, due_at, scheduled_at, started_at, finished_at, expires_at,
        token, version, worker, until,
        cancel, failure, result, progress, checkpoint,
    ) = row[:WIDTH]  # fmt: skip
    common = _policy_of(policy)
    return Job(
        id=id_,
        type=type_,
        queue=queue,
        payload=payload,
        encoding=common.encoding,
        profile=common.profile,
        created_at=created_at,
        timeout=common.timeout,
        lease_ttl=common.lease_ttl,
        lifetime=common.lifetime,
        backoff=common.backoff,
        retry_timeouts=common.retry_timeouts,
        retry_crashes=common.retry_crashes,
        tags=_tags_of(tags) if tags is not None else _NO_TAGS,
        correlation_id=correlation_id or "",
        callback_url=callback_url or "",
        limit_key=limit_key or "",
        dedupe=_dedupe_of(dedupe) if dedupe is not None else None,
        depends_on=tuple(depends_on) if depends_on else (),
        dependency_kind=DependencyKind(kind) if kind else DependencyKind.AFTER,
        depth=depth,
        spawned_by=spawned_by or "",
        extra=extra,
        state=_states[state],
        revision=revision,
        priority=priority,
        max_attempts=max_attempts,
        attempt=attempt,
        generation=generation,
        held=held,
        updated_at=updated_at,
        due_at=due_at,
        scheduled_at=scheduled_at,
        started_at=started_at,
        finished_at=finished_at,
        expires_at=expires_at,
        lease=Lease(token, version, worker, until) if token is not None else None,
        cancel=_cancel_of(cancel) if cancel is not None else None,
        failure=failure_of(failure) if failure is not None else None,
        result=result,
        progress=_progress_of(progress) if progress is not None else None,
        checkpoint=checkpoint,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALID: Final = (
    "", "", "", b"null", b"{}", _EPOCH, None, None,
    None, None, None, None, None, 0, None, None,
    "FAILED", 0, 0, 1, 0, 1, False,
    _EPOCH, None, None, None, None, _EPOCH,
    None, 0, "", None,
    None, None, None, None, None,
)  # fmt: skip
"""Columns that stand in for what is damaged in a row."""


def claimed_of(rows: Iterable[Row], want: Claim) -> list[Job]:
    """Read jobs from the columns of ``claim.sql``; most differ in ids, payloads and times only."""
    jobs = []
    alike: dict[object, Job] = {}
    moments = Instants()
    for row in rows:
        kind = row[KIND:] if row[DEPENDS_ON] is None else row[ID]  # a list has no hash
        job = alike.get(kind)
        if job is None:
            job = alike[kind] = _claimed(row, want, moments)
        else:
            job = replace(
                job,
                id=row[ID],
                payload=row[PAYLOAD],
                created_at=moments[row[CREATED_AT]],
                scheduled_at=moments[row[SCHEDULED_AT]],
                expires_at=moments[row[EXPIRES_AT]],
            )
        jobs.append(job)
    return jobs


def places_of(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Return queue, level and first place of each kind of job in rows of ``claim.sql``."""
    first = {row[KIND]: row[PLACE] for row in reversed(rows)}
    return [(*record_of(kind)[:2], place) for kind, place in first.items()]


def _claimed(row: Row, want: Claim, moments: Instants) -> Job:
    (
        _, _, _, id_, payload, created_at, scheduled_at, expires_at, kind, tags,
        correlation_id, callback_url, limit_key, dedupe, depends_on, dependency_kind,
        spawned_by, extra, due_at, finished_at, cancel, failure, result, progress, checkpoint,
    ) = row  # fmt: skip
    (
        queue, _, type_, policy, priority, updated_at, attempt, version, until,
        revision, max_attempts, generation, held, depth,
    ) = record_of(kind)  # fmt: skip
    return job_of((
        id_, type_, queue, payload, policy, moments[created_at], tags, correlation_id,
        callback_url, limit_key, dedupe, depends_on, dependency_kind, depth, spawned_by, extra,
        State.RUNNING.value, revision, priority, max_attempts, attempt, generation, held,
        updated_at, due_at, moments[scheduled_at], updated_at, finished_at, moments[expires_at],
        want.token, version, want.worker, until,
        cancel, failure, result, progress, checkpoint,
    ))  # fmt: skip


def transitions_of(row: Row) -> list[Transition]:
    """Read (event, from, to, at, reason, attempt, lease version, worker, failure).

    A row without a previous state is a submission; with another event than that it stands for
    both the submission and the transition that followed at once.
    """
    event, from_state, to_state, at, reason, attempt, version, worker, failure = row
    follows = from_state is None and event != Event.SUBMIT
    step = Transition(
        event=_events[event],
        from_state=State.PENDING if follows else _states.get(from_state),
        to_state=_states[to_state],
        at=at,
        reason=reason,
        attempt=attempt,
        lease_version=version,
        worker=worker,
        failure=failure_of(failure) if failure is not None else None,
    )
    return [Transition.submitted(at), step] if follows else [step]


def progress_of(data: bytes) -> Progress:
    """Read a progress report."""
    return _progress_of(data)


def cancel_of(data: bytes | None) -> CancelRequest | None:
    """Read a request to cancel, if there is one."""
    return None if data is None else _cancel_of(data)


def seconds(span: timedelta | None) -> float | None:
    """Return a span as the parameter of ``make_interval``."""
    return None if span is None else span.total_seconds()
