"""Turns a submission into a job, or reports all its faults at once.

The id and the time are arguments, so accepting the same submission again returns the same
job and a repeated write is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import is_

import msgspec
from msgspec.structs import astuple, replace

from holdfast.errors import Fault, ValidationError
from holdfast.model import lifecycle
from holdfast.model.dependencies import Node, order
from holdfast.model.job import (
    DependencyKind,
    Encoding,
    Job,
    Priority,
    extra_document,
    read_extra,
)
from holdfast.model.payload import PayloadError, clean, encode
from holdfast.model.policy import Limits
from holdfast.model.submission import Defaults, Parent, Spawner, Submission, is_mapping, named_jobs
from holdfast.model.times import shown
from holdfast.model.validation import SubmissionReader

NO_DEFAULTS = Defaults()
NO_PARENTS: Mapping[str, Parent] = {}
FIELDS = frozenset(Submission.__struct_fields__) - {"faults"}


def read(fields: object) -> Submission:
    """Make a submission from a mapping of fields.

    Faults of the names are not raised here: they travel in ``faults``, and ``accept`` raises
    them together with the faults of the values.
    """
    if not is_mapping(fields):
        raise ValidationError([Fault("job", "INVALID", f"must be an object, got {shown(fields)}")])
    known = {str(name): value for name, value in fields.items() if name in FIELDS}
    faults = [_unknown(name) for name in fields if name not in FIELDS]
    if "type" not in known:
        faults.append(Fault("type", "REQUIRED", "is required"))
    elif not isinstance(known["type"], str):
        given = shown(known["type"])
        faults.append(Fault("type", "INVALID", f"must be a string, got {given}"))
    if any(fault.field == "type" for fault in faults):
        known["type"] = ""
    return Submission(**known, faults=tuple(faults))  # type: ignore[arg-type]  # accept() checks


class PlainSubmission(msgspec.Struct, frozen=True):
    """What most submissions are: a payload for a job that waits for nothing."""

    template: Job
    """The job without its id, times, payload and encoding."""
    payload: bytes
    encoding: Encoding


def plain(submission: Submission, defaults: Defaults) -> PlainSubmission | None:
    """Read a submission that gives only the usual fields; None when it needs ``accept``."""
    if not all(map(is_, astuple(submission)[len(_USUAL) :], _UNSET)):
        return None
    try:
        template = _template(submission.type, submission.queue, submission.priority, defaults)
        payload, encoding = encode(submission.payload, defaults.limits.payload_bytes)
    except (ValidationError, PayloadError, TypeError):
        return None
    if defaults.misfit is not None and defaults.misfit(payload, encoding):
        return None
    return PlainSubmission(template, payload, encoding)


def plain_job(given: PlainSubmission, job_id: str, now: datetime) -> Job:
    """Make the job of a plain submission."""
    return lifecycle.enqueued_again(
        given.template, now=now, id=job_id, payload=given.payload, encoding=given.encoding
    )


class PlainJobs:
    """Makes plain jobs at one instant: those of one template share all but id and payload."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._first: dict[int, tuple[Job, Job]] = {}

    def job(self, given: PlainSubmission, job_id: str) -> Job:
        """Make a job, as a copy of the first one with the same template."""
        template = given.template
        if first := self._first.get(id(template)):
            return replace(first[1], id=job_id, payload=given.payload, encoding=given.encoding)
        job = plain_job(given, job_id, self._now)
        self._first[id(template)] = template, job  # keeps the template alive, so its id is unique
        return job


_USUAL = ("type", "payload", "queue", "priority")
assert Submission.__struct_fields__[: len(_USUAL)] == _USUAL
_UNSET = Submission.__struct_defaults__[len(_USUAL) - 1 :]
_EPOCH = datetime.fromtimestamp(0, UTC)


@lru_cache(maxsize=1024, typed=True)
def _template(type_: str, queue: str | None, priority: object, defaults: Defaults) -> Job:
    """Return a job that waits for nothing, to be copied with an id, times and a payload."""
    given = Submission(type=type_, queue=queue, priority=priority)  # type: ignore[arg-type]  # the reader checks it
    any_payload = replace(defaults, misfit=None)
    job = SubmissionReader(given, any_payload, _EPOCH, NO_PARENTS).job("", None)
    return lifecycle.enqueued(lifecycle.submitted(job), now=_EPOCH)


def accept(
    submission: Submission,
    *,
    job_id: str,
    now: datetime,
    defaults: Defaults = NO_DEFAULTS,
    parents: Mapping[str, Parent] | None = None,
    spawner: Spawner | None = None,
) -> Job:
    """Make the job of a submission; ValidationError lists every fault."""
    if usual := plain(submission, defaults):
        job = plain_job(usual, job_id, now)
        return job if spawner is None else _spawned(job, spawner)
    reader = SubmissionReader(submission, defaults, now, parents or NO_PARENTS)
    job = lifecycle.submitted(reader.job(job_id, spawner))
    return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)


def _spawned(job: Job, spawner: Spawner) -> Job:
    """Return a plain job as the child of a running one, as ``SubmissionReader`` makes it."""
    own = read_extra(job.extra)
    inherited = replace(own, headers=read_extra(spawner.extra).headers)
    return replace(
        job,
        spawned_by=spawner.job_id,
        dependency_kind=DependencyKind.FAN_OUT,
        extra=extra_document(inherited),
    )


def _unknown(name: object) -> Fault:
    field = clean(name, 60) if isinstance(name, str) else shown(name)
    if name in ("id", "job_id"):
        return Fault(field, "UNKNOWN_FIELD", "must not be given: the system assigns it")
    return Fault(field, "UNKNOWN_FIELD", "is not a field of a submission")


MOST_JOBS = Limits().batch


def outside_references(submissions: Sequence[Submission]) -> list[str]:
    """Return the ids that a batch depends on and that are not refs of its own, each once."""
    refs = {s.ref for s in submissions if isinstance(s.ref, str)}
    named = (name for s in submissions for name in named_jobs(s.depends_on) if name not in refs)
    return list(dict.fromkeys(named))


def accept_batch(
    submissions: Sequence[Submission],
    *,
    job_ids: Sequence[str],
    now: datetime,
    defaults_for: Callable[[Submission], Defaults] = lambda _: NO_DEFAULTS,
    parents: Mapping[str, Parent] | None = None,
    most: int = MOST_JOBS,
) -> list[Job | ValidationError]:
    """Accept jobs that may depend on each other by ``ref``; each yields its job or its faults.

    A job that depends on a refused job of the batch is refused too. An empty batch and one of
    more than ``most`` jobs are refused as a whole.
    """
    if not 1 <= len(submissions) <= most:
        message = f"must be a list of 1 to {most} jobs, got {len(submissions)}"
        raise ValidationError([Fault("jobs", "OUT_OF_RANGE", message)])
    graph, plain_jobs = _Graph(submissions, job_ids), PlainJobs(now)

    def accepted(submission: Submission, job_id: str) -> Job | ValidationError:
        defaults = defaults_for(submission)
        if usual := plain(submission, defaults):
            return plain_jobs.job(usual, job_id)
        try:
            return accept(submission, job_id=job_id, now=now, defaults=defaults, parents=known)
        except ValidationError as error:
            return error

    known = {**(parents or {}), **{job_ids[i]: _REFUSED for i in graph.faults}}
    if not graph.is_linked:
        return list(map(accepted, submissions, job_ids))
    answers: dict[int, Job | ValidationError] = {}
    for i in graph.order:
        faults = graph.faults.get(i) or graph.refused_parents(i, answers)
        answer = accepted(graph.resolved(i), job_ids[i])
        if isinstance(answer, ValidationError) or faults:
            own = answer.faults if isinstance(answer, ValidationError) else ()
            answers[i] = ValidationError([*faults, *own])
            known[job_ids[i]] = _REFUSED
        else:
            answers[i] = answer
            known[job_ids[i]] = Parent(answer.priority, answer.depth)
    return [answers[i] for i in range(len(submissions))]


_REFUSED = Parent(Priority.BULK, 0)
"""Stands for a refused job, so that a job that depends on it does not get NOT_FOUND."""


class _Graph:
    """The jobs of one batch by their refs."""

    def __init__(self, submissions: Sequence[Submission], job_ids: Sequence[str]) -> None:
        self.faults: dict[int, list[Fault]] = {}
        """Faults of refs and cycles, by position in the batch."""
        self._submissions = submissions
        self._job_ids = job_ids
        self._positions: dict[str, int] = {}
        for i, submission in enumerate(submissions):
            self._place(i, submission.ref)
        self.order = self._ordered()
        """Positions, dependencies first; empty when no job has a ref."""

    @property
    def is_linked(self) -> bool:
        """Whether any job has a ref by which others may depend on it."""
        return bool(self._positions)

    def _place(self, i: int, ref: object) -> None:
        if not isinstance(ref, str) or not ref:
            return
        if ref in self._positions:
            message = f"must be unique in its batch, got {ref!r:.60} twice"
            self.faults[i] = [Fault("ref", "NOT_UNIQUE", message)]
        else:
            self._positions[ref] = i

    def _ordered(self) -> Sequence[int]:
        if not self._positions:
            return ()
        nodes = [
            Node(str(i), tuple(str(parent) for parent in self._parents(i)))
            for i in range(len(self._submissions))
        ]
        labels, cycles = order(nodes)
        for cycle in cycles:
            members = [int(label) for label in cycle]
            names = [str(self._submissions[i].ref) for i in [*members, members[0]]]
            fault = Fault("depends_on", "CYCLE", f"must not form a cycle: {' -> '.join(names)}")
            for i in members:
                self.faults.setdefault(i, []).append(fault)
        return [int(label) for label in labels]

    def _parents(self, i: int) -> list[int]:
        """The jobs of the batch that a job depends on, each once."""
        names = dict.fromkeys(named_jobs(self._submissions[i].depends_on))
        return [self._positions[name] for name in names if name in self._positions]

    def resolved(self, i: int) -> Submission:
        """Return a submission with refs replaced by ids."""
        submission = self._submissions[i]
        if not submission.depends_on or not named_jobs(submission.depends_on):
            return submission
        ids = tuple(self._id_of(name) for name in submission.depends_on)
        return replace(submission, depends_on=ids)

    def _id_of(self, name: object) -> object:
        known = isinstance(name, str) and name in self._positions
        return self._job_ids[self._positions[name]] if known else name  # type: ignore[index]

    def refused_parents(self, i: int, answers: Mapping[int, Job | ValidationError]) -> list[Fault]:
        """Return a fault for each refused job of the batch that a job depends on."""
        return [
            Fault("depends_on", "REFUSED", f"names {self._submissions[p].ref!r:.60}, a refused job")
            for p in self._parents(i)
            if isinstance(answers.get(p), ValidationError)
        ]
