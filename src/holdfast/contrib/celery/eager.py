"""Canvases that run here and now: ``apply`` and ``task_always_eager``."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.contrib.celery.canvas import Canvas, CelerySignature, chain, chord, group, several
from holdfast.contrib.celery.exceptions import Retry, UnsupportedError
from holdfast.contrib.celery.handler import Callbacks, execute
from holdfast.contrib.celery.request import CeleryRequest
from holdfast.contrib.celery.results import AnyResult, EagerResult, GroupResult

if TYPE_CHECKING:
    from holdfast.contrib.celery.interface import CeleryApp
    from holdfast.contrib.celery.task import CeleryTask


def run(app: CeleryApp, canvas: Canvas) -> AnyResult:
    """Run a canvas and return its result."""
    match canvas:
        case CelerySignature():
            return _task(app, canvas)
        case chain():
            return _steps(app, canvas.tasks)
        case group():
            parts = [run(app, part) for part in canvas.tasks]
            return GroupResult(app.holdfast.randomness.uuid(), parts, app=app)
        case chord():
            if canvas.body is None:
                raise UnsupportedError("a chord without a body", "write chord(header)(body)")
            return _steps(app, [canvas.header, canvas.body])
    raise UnsupportedError(f"a {type(canvas).__name__}", "use tasks, chains, groups and chords")


def _steps(app: CeleryApp, steps: list[Canvas]) -> AnyResult:
    before: AnyResult | None = None
    for step in steps:
        if before is not None and before.failed():
            return before
        result = run(app, step if before is None else step.clone((before.get(),)))
        result.parent = before
        before = result
    if before is None:
        raise UnsupportedError("an empty chain", "give it a task")
    return before


def _task(app: CeleryApp, sig: CelerySignature) -> EagerResult:
    task = app.tasks[sig.task]
    args, kwargs = _as_stored(sig)
    id_, retries = app.holdfast.randomness.uuid(), 0
    while True:
        request = CeleryRequest(
            id=id_,
            task=task.name,
            args=args,
            kwargs=kwargs,
            retries=retries,
            called_directly=False,
            is_eager=True,
        )
        try:
            result = execute(task, request, _EagerLinks(app, sig))
        except Retry:
            retries += 1
        except Exception as error:
            if app.conf.task_eager_propagates:
                raise
            return EagerResult(id_, "FAILURE", error, traceback.format_exc())
        else:
            return EagerResult(id_, "SUCCESS", msgspec.to_builtins(result))


def _as_stored(sig: CelerySignature) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments as a worker would receive them: what JSON makes of them."""
    data = msgspec.json.encode((sig.args, sig.kwargs))
    args, kwargs = msgspec.json.decode(data)
    return tuple(args), kwargs


class _EagerLinks(Callbacks):
    def __init__(self, app: CeleryApp, sig: CelerySignature) -> None:
        self._app = app
        self._options = sig.options

    def succeeded(self, result: object) -> None:
        for linked in several(self._options.get("link")):
            run(self._app, linked.clone((result,)))

    def failed(self, request: CeleryRequest, error: Exception, trace: str) -> None:
        for errback in several(self._options.get("link_error")):
            task: CeleryTask = self._app.tasks[errback.task]
            task.apply((request.id, *errback.args), errback.kwargs)
