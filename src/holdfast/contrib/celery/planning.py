"""From canvases to jobs: one graph of submissions, written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.contrib.celery.canvas import (
    FIRST_ONLY,
    Canvas,
    CelerySignature,
    chain,
    chord,
    group,
    linked,
    several,
)
from holdfast.contrib.celery.exceptions import UnsupportedError
from holdfast.contrib.celery.options import call_options, expiry
from holdfast.contrib.celery.results import AnyResult, AsyncResult, GroupResult
from holdfast.model.job import DependencyKind
from holdfast.model.submission import Submission

if TYPE_CHECKING:
    from holdfast.contrib.celery.interface import CeleryApp

MOST_AT_ONCE = 1000
"""Jobs of one batch."""


def submit(app: CeleryApp, canvas: Canvas) -> AnyResult:
    """Submit a canvas and return its result."""
    planner = _Planner(app)
    shape = planner.plan(canvas, _Before(), canvas.options, first=True)
    return _result(app, shape, planner.written())


def submission_of(
    app: CeleryApp,
    sig: CelerySignature,
    inherited: Mapping[str, Any] | None = None,
    after: str = "",
) -> Submission:
    """Return the submission of one task."""
    given = {**(inherited or {}), **sig.options}
    task = app.tasks.get(sig.task)
    payload: dict[str, Any] = {"args": list(sig.args), "kwargs": sig.kwargs}
    if after and not sig.immutable:
        payload["after"] = after
    if given.get("expires") is not None:
        payload["expires"] = expiry(given["expires"])
    for name in ("link", "link_error"):
        if links := several(given.get(name)):
            payload[name] = [linked(each) for each in links]
    options = call_options(given, app.conf, sig.task, task.queue if task else None)
    return Submission(type=sig.task, payload=payload, **options)


@dataclass(frozen=True)
class _Before:
    """The jobs that a step waits for, and whether it receives a list."""

    refs: tuple[str, ...] = ()
    after: str = ""


@dataclass(frozen=True)
class _One:
    index: int
    parent: _One | _Many | None = None


@dataclass(frozen=True)
class _Many:
    parts: tuple[_One | _Many, ...]
    parent: _One | _Many | None = None


class _Planner:
    def __init__(self, app: CeleryApp) -> None:
        self._app = app
        self._jobs: list[Submission] = []

    def plan(
        self, canvas: Canvas, before: _Before, options: Mapping[str, Any], *, first: bool
    ) -> _One | _Many:
        """Add the jobs of a canvas that runs after others."""
        if not first:
            options = {name: value for name, value in options.items() if name not in FIRST_ONLY}
        match canvas:
            case CelerySignature():
                return self._one(canvas, before, options)
            case chain():
                return self._chain(canvas.tasks, before, options, first=first)
            case group():
                parts = [self._part(part, before, options, first=first) for part in canvas.tasks]
                return _Many(tuple(parts))
            case chord():
                steps = [canvas.header, _body(canvas)]
                return self._chain(steps, before, options, first=first)
        raise UnsupportedError(f"a {type(canvas).__name__}", "use tasks, chains, groups and chords")

    def written(self) -> list[str]:
        """Submit the jobs, all or none, and return their ids."""
        sync = self._app.holdfast.sync
        if len(self._jobs) <= 1:
            return [sync.submit_batch([job]).results[0].job_id for job in self._jobs]
        if any(job.depends_on for job in self._jobs):
            return [each.job_id for each in sync.submit_batch(self._jobs).results]
        pages = range(0, len(self._jobs), MOST_AT_ONCE)
        batches = [sync.submit_batch(self._jobs[at : at + MOST_AT_ONCE]) for at in pages]
        return [each.job_id for batch in batches for each in batch.results]

    def _part(
        self, canvas: Canvas, before: _Before, options: Mapping[str, Any], *, first: bool
    ) -> _One | _Many:
        return self.plan(canvas, before, {**options, **canvas.options}, first=first)

    def _one(self, sig: CelerySignature, before: _Before, options: Mapping[str, Any]) -> _One:
        job = submission_of(self._app, sig, options, before.after)
        if before.refs:
            job = replace(job, depends_on=before.refs, dependency_type=DependencyKind.AFTER)
        self._jobs.append(replace(job, ref=f"job {len(self._jobs)}"))
        return _One(len(self._jobs) - 1)

    def _chain(
        self, steps: Sequence[Canvas], before: _Before, options: Mapping[str, Any], *, first: bool
    ) -> _One | _Many:
        if not steps:
            raise UnsupportedError("an empty chain", "give it a task")
        links = {name: options[name] for name in ("link",) if name in options}
        shared = {name: value for name, value in options.items() if name not in links}
        shape: _One | _Many | None = None
        for number, step in enumerate(steps):
            own = {**shared, **step.options}
            if number == len(steps) - 1:
                own = {**links, **own}
            made = self.plan(step, before, own, first=first and number == 0)
            shape = _with_parent(made, shape)
            before = self._after(shape, before)
        assert shape is not None
        return shape

    def _after(self, shape: _One | _Many, before: _Before) -> _Before:
        many = isinstance(shape, _Many)
        refs = tuple(str(self._jobs[index].ref) for index in _tails(shape))
        # An empty group adds nothing to wait for: the next step waits for the one before.
        return _Before(refs or before.refs, "many" if many else "one")


def _with_parent(shape: _One | _Many, parent: _One | _Many | None) -> _One | _Many:
    if isinstance(shape, _One):
        return _One(shape.index, shape.parent or parent)
    return _Many(shape.parts, shape.parent or parent)


def _tails(shape: _One | _Many) -> list[int]:
    """The jobs whose results a shape stands for, in order."""
    if isinstance(shape, _One):
        return [shape.index]
    return [index for part in shape.parts for index in _tails(part)]


def _result(app: CeleryApp, shape: _One | _Many, ids: Sequence[str]) -> AnyResult:
    parent = _result(app, shape.parent, ids) if shape.parent else None
    if isinstance(shape, _One):
        return AsyncResult(ids[shape.index], app=app, parent=parent)
    parts = [_result(app, part, ids) for part in shape.parts]
    return GroupResult(app.holdfast.randomness.uuid(), parts, app=app, parent=parent)


def _body(canvas: chord) -> Canvas:
    if canvas.body is None:
        raise UnsupportedError("a chord without a body", "write chord(header)(body)")
    return canvas.body
