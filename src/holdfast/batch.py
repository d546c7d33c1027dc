"""Jobs submitted together: they may depend on each other by local names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.dependencies import Node, order
from holdfast.errors import Fault, ValidationError
from holdfast.form import Defaults, Parent, Submission, named_jobs
from holdfast.job import Job, Priority
from holdfast.submission import NO_DEFAULTS, accept


def outside_references(submissions: Iterable[Submission]) -> list[str]:
    """Return the ids a batch depends on that are not its own refs, each once."""
    refs = {s.ref for s in submissions if s.ref}
    named = (name for s in submissions for name in named_jobs(s.depends_on) if name not in refs)
    return list(dict.fromkeys(named))


def accept_batch(
    submissions: Sequence[Submission],
    *,
    job_ids: Sequence[str],
    now: datetime,
    defaults_for: Callable[[Submission], Defaults] = lambda _: NO_DEFAULTS,
    parents: Mapping[str, Parent] | None = None,
) -> list[Job | ValidationError]:
    """Accept jobs that may depend on each other by ``ref``; each gets its job or its faults.

    A job that depends on a refused job of the batch is refused with it.
    """
    graph = _Graph(submissions, job_ids)
    known = dict(parents or {})
    jobs: list[Job | ValidationError | None] = [None] * len(submissions)
    ordered = graph.order()
    known |= {job_ids[i]: _REFUSED for i in ordered if graph.faults[i]}
    for i in ordered:
        faults = graph.faults[i]
        named = msgspec.structs.replace(submissions[i], depends_on=graph.ids_named_by(i))
        try:
            job = accept(
                named, job_id=job_ids[i], now=now, defaults=defaults_for(named), parents=known
            )
        except ValidationError as error:
            faults.extend(error.faults)
        else:
            jobs[i] = job
        if faults:
            jobs[i] = ValidationError(faults)
            graph.refuse(i)
        known[job_ids[i]] = Parent(job.priority, job.depth) if not faults else _REFUSED
    return [job for job in jobs if job is not None]


_REFUSED = Parent(Priority.BULK, 0)


class _Graph:
    """The jobs of one batch by their local names."""

    def __init__(self, submissions: Sequence[Submission], job_ids: Sequence[str]) -> None:
        self.faults: list[list[Fault]] = [[] for _ in submissions]
        self._job_ids = job_ids
        self._named = [named_jobs(s.depends_on) for s in submissions]
        self._labels: dict[str, int] = {}
        for i, submission in enumerate(submissions):
            if submission.ref and submission.ref in self._labels:
                self.faults[i].append(
                    Fault("ref", "NOT_UNIQUE", f"must be unique, got {submission.ref!r} twice")
                )
            else:
                self._labels[submission.ref or job_ids[i]] = i
        self._label_of = {i: label for label, i in self._labels.items()}

    def order(self) -> list[int]:
        """Return the positions so that dependencies come first; note cycles as faults."""
        nodes = [
            Node(self._label_of.get(i, self._job_ids[i]), names)
            for i, names in enumerate(self._named)
        ]
        position = {node.label: i for i, node in enumerate(nodes)}
        labels, cycles = order(nodes)
        for cycle in cycles:
            told = "must not form a cycle: " + " -> ".join([*cycle, cycle[0]])
            for label in cycle:
                self.faults[position[label]].append(Fault("depends_on", "CYCLE", told))
        return [position[label] for label in labels]

    def ids_named_by(self, i: int) -> tuple[str, ...]:
        """Return the dependencies of a job with local names replaced by ids."""
        return tuple(
            self._job_ids[self._labels[name]] if name in self._labels else name
            for name in self._named[i]
        )

    def refuse(self, i: int) -> None:
        """Refuse every job that names this one."""
        label = self._label_of.get(i)
        for j, names in enumerate(self._named):
            if label in names and not any(f.code == "CYCLE" for f in self.faults[j]):
                self.faults[j].append(
                    Fault("depends_on", "REFUSED", f"names {label!r}, which was refused")
                )
