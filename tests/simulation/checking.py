"""What must be true after a run, beyond what each job's own history shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.model.job import TERMINAL, Event, Job, State, Transition
from holdfast.model.lifecycle import may_answer
from holdfast.store import Fence
from holdfast.verify import Checker, Witness
from holdfast.worker.heartbeat import DEADLINE_MARGIN
from tests.simulation.record import ANSWERS, OUTCOMES, Record
from tests.simulation.world import BEGIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.record import Execution, Written

AGES = timedelta(days=1)
"""Requests may take so long that the order of service cannot be checked."""

SLACK = 2.0
"""Seconds that a message may take, or a clock be ahead, without a violation."""


GRACE = 10.0
"""Seconds after which a schedule must have submitted while workers run."""


@dataclass
class Evidence:
    """Everything a run recorded."""

    record: Record
    jobs: list[Job]
    histories: dict[str, list[Transition]]
    parents: dict[str, list[str]]
    ended: bool
    """Whether every job ended in time."""
    end: float

    def job(self, job_id: str) -> Job | None:
        return next((job for job in self.jobs if job.id == job_id), None)


def violations(evidence: Evidence) -> list[str]:
    """Name every promise that was broken."""
    checks = (
        *(_stuck, _audit, _double, _lapsed_early, _renewed_late, _foreign_writes),
        *(_wrong_result, _run_twice, _unoffered, _abandoned, _cancel_lies, _ticks),
        *(_children, _wrongs),
    )
    return [text for check in checks for text in check(evidence)]


def _stuck(evidence: Evidence) -> Iterator[str]:
    if not evidence.ended:
        for job in evidence.jobs:
            if job.state not in TERMINAL:
                yield f"{job.id} is still {job.state} (held: {job.held}, due: {job.due_at})"


def _audit(evidence: Evidence) -> Iterator[str]:
    """What the audit records say, and whether they agree with what clients received."""
    witness = Witness()
    witness.accepted = set(evidence.record.accepted)
    witness.cancelled = {id_ for _, id_, answer in evidence.record.cancels if answer == "CANCELLED"}
    checker = Checker(witness, slack=timedelta(0), order_slack=AGES, has_workers=False)
    for job in evidence.jobs:
        parents = {
            parent: evidence.histories.get(parent, []) for parent in evidence.parents[job.id]
        }
        checker.check(job, evidence.histories[job.id], parents, now=_instant(evidence.end))
    for found in checker.finish().findings:
        yield f"{found.job_id} {found.text}"


def _double(evidence: Evidence) -> Iterator[str]:
    claims = Counter((claim.job.id, claim.job.lease_version) for claim in evidence.record.claims)
    for (job_id, version), count in claims.items():
        if count > 1:
            yield f"{job_id}: claim {version} given {count} times"


def _lapsed_early(evidence: Evidence) -> Iterator[str]:
    """A lease may be reaped only after it expired, as last renewed."""
    granted: defaultdict[Fence, list[tuple[float, datetime]]] = defaultdict(list)
    for claim in evidence.record.claims:
        if claim.job.lease is not None and claim.job.lease.until is not None:
            fence = Fence(claim.job.id, claim.job.lease.token)
            granted[fence].append((claim.at, claim.job.lease.until))
    for at, fence, until in evidence.record.renewals:
        granted[fence].append((at, until))
    for taken in _changes(evidence.record, frozenset({Event.LAPSE})):
        assert taken.change.before.lease is not None
        fence = Fence(taken.change.before.id, taken.change.before.lease.token)
        until = max(end for at, end in granted[fence] if at < taken.at)
        if taken.answer.written and until > _instant(taken.at):
            yield f"{taken.change.before.id} was reaped while its lease was valid"


def _renewed_late(evidence: Evidence) -> Iterator[str]:
    """No lease is renewed for longer than the job may run."""
    claims = {
        Fence(claim.job.id, claim.job.lease.token): claim.job
        for claim in evidence.record.claims
        if claim.job.lease
    }
    starts = {(run.job_id, run.version): run.started for run in evidence.record.executions}
    for at, fence in evidence.record.beats:
        job = claims.get(fence)
        started = starts.get((job.id, job.lease_version)) if job is not None else None
        if job is None or started is None:
            continue
        most = 1.05 * (job.timeout.total_seconds() + DEADLINE_MARGIN) + SLACK
        if at - started > most:
            yield f"{job.id} was renewed {at - started:.1f} s after its start"


def _foreign_writes(evidence: Evidence) -> Iterator[str]:
    """Only the holder of the newest lease writes the outcome of a job."""
    owners = _owners(evidence.record)
    for written in _changes(evidence.record, ANSWERS):
        lease = written.change.before.lease
        assert lease is not None
        if written.answer.written and owners.get(lease.token) != written.sender:
            who = f"{written.sender} under another's lease"
            yield f"{written.change.before.id} was settled by {who}"


def _owners(record: Record) -> dict[str, str]:
    """Token -> the process that claimed under it."""
    return {claim.job.lease.token: claim.sender for claim in record.claims if claim.job.lease}


def _wrong_result(evidence: Evidence) -> Iterator[str]:
    """A completed job holds the result of the attempt that completed it.

    A claim that acts twice may give a job to the same worker again under the same token, which
    only that worker has: its result under the older version is then as good.
    """
    finished = {
        (run.job_id, str(run.version).encode())
        for run in evidence.record.executions
        if run.finished is not None
    }
    tokens = {
        (claim.job.id, str(claim.job.lease_version).encode()): claim.job.lease.token
        for claim in evidence.record.claims
        if claim.job.lease
    }
    for job in evidence.jobs:
        if job.state is State.COMPLETED and job.lease is not None:
            if tokens.get((job.id, job.result or b"")) != job.lease.token:
                yield f"{job.id} version {job.lease_version} holds the result of {job.result!r}"
            if (job.id, job.result) not in finished:
                yield f"{job.id} completed without having run to its end"


def _run_twice(evidence: Evidence) -> Iterator[str]:
    """Each claim is run once, and every effect belongs to a claim: none is unexplained."""
    starts = Counter((run.job_id, run.version) for run in evidence.record.executions)
    for (job_id, version), count in starts.items():
        claims = {
            edge.lease_version
            for edge in evidence.histories.get(job_id, ())
            if edge.event is Event.CLAIM
        }
        if count > 1:
            yield f"{job_id} version {version} ran {count} times"
        if version not in claims:
            yield f"{job_id} ran as version {version}, which was never claimed"


def _unoffered(evidence: Evidence) -> Iterator[str]:
    """The outcome of a finished handler is written, however long the outage."""
    offered = {
        (written.change.before.id, written.change.before.lease_version, written.sender)
        for written in _changes(evidence.record, OUTCOMES)
    }
    for run in evidence.record.executions:
        if run.finished is None or _was_disturbed(evidence, run):
            continue
        if (run.job_id, run.version, run.process) not in offered:
            yield f"{run.job_id} version {run.version} finished and was never written"


def _abandoned(evidence: Evidence) -> Iterator[str]:
    """A late outcome under the newest lease is retried until it is written."""
    newest: dict[tuple[str, str], Written] = {}
    owners = _owners(evidence.record)
    for written in _changes(evidence.record, OUTCOMES):
        assert written.change.before.lease is not None
        token = written.change.before.lease.token
        place = (written.change.before.id, token)
        done = place in newest and newest[place].answer.written
        reaped = written.change.until is not None  # by the owner itself, who never had the job
        if owners.get(token) == written.sender and not done and not reaped:
            newest[place] = written
    for (job_id, token), last in newest.items():
        job = last.answer.job
        accepted = (
            not last.answer.written
            and job is not None
            and may_answer(job, token)
            # a claim that acts twice gives one token to two leases; this settles the first
            and job.lease_version == last.change.before.lease_version
        )
        if accepted and last.sender not in evidence.record.deaths and evidence.ended:
            yield f"{job_id}: {last.sender} abandoned an outcome that was still accepted"


def _children(evidence: Evidence) -> Iterator[str]:
    """However many attempts a job takes, it spawns each child once."""
    spawned = Counter(job.spawned_by for job in evidence.jobs if job.spawned_by)
    for job_id, count in spawned.items():
        parent = evidence.job(job_id)
        if parent is not None and count > (most := parent.payload.count(b'"spawn"')):
            yield f"{job_id} spawned {count} children instead of {most}"


def _wrongs(evidence: Evidence) -> Iterator[str]:
    """What was wrong when it happened."""
    yield from evidence.record.wrongs


def _cancel_lies(evidence: Evidence) -> Iterator[str]:
    """A job that was requested to stop is not started again."""
    for at, job_id, answer in evidence.record.cancels:
        job = evidence.job(job_id)
        if job is None or answer not in ("CANCELLED", "CANCEL_REQUESTED"):
            continue
        later = [
            edge
            for edge in evidence.histories[job_id]
            if edge.event is Event.CLAIM and edge.at > _instant(at)
        ]
        if later and job.generation == 1:
            yield f"{job_id} was requested to stop and started again"


def _ticks(evidence: Evidence) -> Iterator[str]:
    """Cron: one job for every minute since the schedule was first seen, and none beside."""
    seen = evidence.record.schedule_seen
    if seen is None:
        return
    minutes = _minute(_instant(evidence.end - GRACE)) - _minute(seen)
    ticks = sum(job.type == "tick" for job in evidence.jobs)
    if ticks < minutes:
        yield f"{minutes} minutes began and only {ticks} ticks were submitted"
    if ticks > _minute(_instant(evidence.end)) - _minute(seen):
        yield f"{ticks} ticks were submitted in {minutes} minutes"


def _minute(moment: datetime) -> int:
    return int(moment.timestamp() // 60)


def _changes(record: Record, events: frozenset[Event]) -> Iterator[Written]:
    """The changes that holders of leases requested."""
    for written in record.swaps:
        if written.change.before.lease is not None and any(
            edge.event in events for edge in written.change.after.trail
        ):
            yield written


def _was_disturbed(evidence: Evidence, run: Execution) -> bool:
    """Whether the outcome could not be written: the process died, or abandoned the handler."""
    assert run.finished is not None
    if (run.process, run.job_id) in evidence.record.left_behind:
        return True
    return run.process in evidence.record.deaths or evidence.end - run.finished < 5 * SLACK


def _instant(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)
