"""Jobs submitted together: they may depend on each other by local names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.dependencies import Node, order
from holdfast.errors import Fault, ValidationError
from holdfast.form import Defaults, Parent, Submission, named_jobs
from holdfast.job import Job, Priority
from holdfast.policy import Limits
from holdfast.submission import NO_DEFAULTS, Births, accept, plain

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
    graph, births = _Graph(submissions, job_ids), Births(now)

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
