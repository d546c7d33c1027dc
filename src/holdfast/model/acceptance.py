"""From what a caller asked for to a job, with every fault at once.

The id and the time come in as arguments, so accepting the same submission again gives the
same job and a repeated write is harmless.
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
from holdfast.model.job import Encoding, Job, Priority
from holdfast.model.payload import PayloadError, clean, encode
from holdfast.model.policy import Limits
from holdfast.model.submission import Defaults, Parent, Spawner, Submission, named_jobs
from holdfast.model.times import shown
from holdfast.model.validation import SubmissionReader

NO_DEFAULTS = Defaults()
NO_PARENTS: Mapping[str, Parent] = {}
FIELDS = frozenset(Submission.__struct_fields__) - {"faults"}


def read(fields: Mapping[str, object]) -> Submission:
    """Make a submission from loose fields.

    Nothing is refused here: what is wrong with the names travels in ``faults`` and is
    raised by ``accept`` together with what is wrong with the values.
    """
    if not isinstance(fields, Mapping):
        raise ValidationError([Fault("job", "INVALID", f"must be an object, got {shown(fields)}")])
    known = {name: value for name, value in fields.items() if name in FIELDS}
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
    """What most submissions come to: a job of a known kind that waits for nothing."""

    kind: Job
    payload: bytes
    encoding: Encoding


def plain(submission: Submission, defaults: Defaults) -> PlainSubmission | None:
    """Read a submission that says no more than most do; None when it must be looked at closer."""
    said = astuple(submission)
    if not all(map(is_, said[len(_USUAL) :], _SILENCE)):
        return None
    try:
        kind = _kind(submission.type, submission.queue, submission.priority, defaults)
        payload, encoding = encode(submission.payload)
    except (ValidationError, PayloadError, TypeError):
        return None
    if len(payload) > defaults.limits.payload_bytes:
        return None
    return PlainSubmission(kind, payload, encoding)


class PlainJobs:
    """Lets plain jobs be born in one moment: those of a kind share all but id and payload."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._first: dict[int, tuple[Job, Job]] = {}

    def job(self, asked: PlainSubmission, job_id: str) -> Job:
        """Return a new job, made like the first of its kind."""
        kind, payload, encoding = asked.kind, asked.payload, asked.encoding
        if first := self._first.get(id(kind)):
            return replace(first[1], id=job_id, payload=payload, encoding=encoding)
        job = lifecycle.enqueued_again(
            kind, now=self._now, id=job_id, payload=payload, encoding=encoding
        )
        self._first[id(kind)] = kind, job  # the kind with it, so that its id stays its own
        return job


_USUAL = ("type", "payload", "queue", "priority")
assert Submission.__struct_fields__[: len(_USUAL)] == _USUAL
_SILENCE = Submission.__struct_defaults__[len(_USUAL) - 1 :]
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@lru_cache(maxsize=1024, typed=True)
def _kind(type_: str, queue: str | None, priority: object, defaults: Defaults) -> Job:
    """Return a job that waits for nothing, without what is its own."""
    asked = Submission(type=type_, queue=queue, priority=priority)  # type: ignore[arg-type]  # it checks
    job = SubmissionReader(asked, defaults, _LONG_AGO, NO_PARENTS).job("", None)
    return lifecycle.enqueued(lifecycle.submitted(job), now=_LONG_AGO)


def accept(
    submission: Submission,
    *,
    job_id: str,
    now: datetime,
    defaults: Defaults = NO_DEFAULTS,
    parents: Mapping[str, Parent] | None = None,
    spawner: Spawner | None = None,
) -> Job:
    """Make a job of a submission, or raise ValidationError with everything that is wrong."""
    if spawner is None and (asked := plain(submission, defaults)):
        return PlainJobs(now).job(asked, job_id)
    intake = SubmissionReader(submission, defaults, now, parents or NO_PARENTS)
    job = lifecycle.submitted(intake.job(job_id, spawner))
    return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)


def _unknown(name: object) -> Fault:
    field = clean(name, 60) if isinstance(name, str) else shown(name)
    if name in ("id", "job_id"):
        return Fault(field, "UNKNOWN_FIELD", "must not be given: the system assigns it")
    return Fault(field, "UNKNOWN_FIELD", "is not a field of a submission")


MOST_JOBS = Limits().batch


def outside_references(submissions: Sequence[Submission]) -> list[str]:
    """Return the ids a batch depends on that are not its own refs, each once."""
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
    """Accept jobs that may depend on each other by ``ref``; each gets its job or its faults.

    A job that depends on a refused job of the batch is refused with it. An empty batch and
    one of more than ``most`` jobs are refused as a whole.
    """
    if not 1 <= len(submissions) <= most:
        told = f"must be a list of 1 to {most} jobs, got {len(submissions)}"
        raise ValidationError([Fault("jobs", "OUT_OF_RANGE", told)])
    graph, births = _Graph(submissions, job_ids), PlainJobs(now)

    def accepted(asked: Submission, job_id: str) -> Job | ValidationError:
        defaults = defaults_for(asked)
        if usual := plain(asked, defaults):
            return births.job(usual, job_id)
        try:
            return accept(asked, job_id=job_id, now=now, defaults=defaults, parents=known)
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
"""Stands in for a refused job, so that those who name it are not told that it is unknown."""


class _Graph:
    """The jobs of one batch by their local names."""

    def __init__(self, submissions: Sequence[Submission], job_ids: Sequence[str]) -> None:
        self.faults: dict[int, list[Fault]] = {}
        """What is wrong with a job's place in the batch, by position."""
        self._submissions = submissions
        self._job_ids = job_ids
        self._positions: dict[str, int] = {}
        for i, submission in enumerate(submissions):
            self._place(i, submission.ref)
        self.order = self._ordered()
        """Positions, dependencies first, if there are any."""

    @property
    def is_linked(self) -> bool:
        """Whether any job has a name by which others may depend on it."""
        return bool(self._positions)

    def _place(self, i: int, ref: object) -> None:
        if not isinstance(ref, str) or not ref:
            return
        if ref in self._positions:
            told = f"must be unique in its batch, got {ref!r:.60} twice"
            self.faults[i] = [Fault("ref", "NOT_UNIQUE", told)]
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
        """The jobs of the batch that a job names, each once."""
        names = dict.fromkeys(named_jobs(self._submissions[i].depends_on))
        return [self._positions[name] for name in names if name in self._positions]

    def resolved(self, i: int) -> Submission:
        """Return a submission with local names replaced by ids."""
        asked = self._submissions[i]
        if not asked.depends_on or not named_jobs(asked.depends_on):
            return asked
        ids = tuple(self._id_of(name) for name in asked.depends_on)
        return replace(asked, depends_on=ids)

    def _id_of(self, name: object) -> object:
        known = isinstance(name, str) and name in self._positions
        return self._job_ids[self._positions[name]] if known else name  # type: ignore[index]

    def refused_parents(self, i: int, answers: Mapping[int, Job | ValidationError]) -> list[Fault]:
        """Return a fault for each refused job of the batch that a job names."""
        return [
            Fault("depends_on", "REFUSED", f"names {self._submissions[p].ref!r:.60}, a refused job")
            for p in self._parents(i)
            if isinstance(answers.get(p), ValidationError)
        ]
