"""What a worker runs for a task: the body with its retries, hooks and links."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.contrib.celery.annotations import as_annotated
from holdfast.contrib.celery.canvas import CelerySignature
from holdfast.contrib.celery.exceptions import EXPIRED, Ignore, Reject, Retry
from holdfast.contrib.celery.request import CeleryRequest, current
from holdfast.errors import JobCancelledError, PermanentError, StaleLeaseError, TemporaryError
from holdfast.tasks.context import SyncJobContext

if TYPE_CHECKING:
    from holdfast.contrib.celery.task import CeleryTask


def handler_of(task: CeleryTask) -> Callable[..., object]:
    """Return the function that a worker calls for the jobs of a task."""

    def handle(
        context: SyncJobContext,
        args: list[Any],
        kwargs: dict[str, Any],
        after: str = "",
        expires: float | str | None = None,
        link: Sequence[dict[str, Any]] = (),
        link_error: Sequence[dict[str, Any]] = (),
    ) -> object:
        _refuse_expired(task, context, expires)
        given = (*_results_before(context, after), *args)
        if (changed := context.restore(list[Any])) is not None:
            given, kwargs = tuple(changed[0]), changed[1]
        given, kwargs = as_annotated(task.run, given, kwargs)
        links = _Links(task, context, link, link_error)
        return execute(task, request_of(task, context, given, kwargs), links)

    handle.__name__ = handle.__qualname__ = getattr(task, "__name__", type(task).__name__)
    return handle


def request_of(
    task: CeleryTask, context: SyncJobContext, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> CeleryRequest:
    """Return the request of a job."""
    return CeleryRequest(
        id=context.job_id,
        task=task.name,
        args=args,
        kwargs=kwargs,
        retries=context.attempt - 1,
        headers=context.headers,
        correlation_id=context.correlation_id,
        delivery_info={"routing_key": context.queue, "exchange": ""},
        called_directly=False,
        context=context,
    )


class Callbacks:
    """What follows a task; the base does nothing."""

    def succeeded(self, result: object) -> None:
        """Submit the tasks that are linked to a result."""

    def failed(self, request: CeleryRequest, error: Exception, trace: str) -> None:
        """Submit or call the tasks that are linked to a failure."""


class _Links(Callbacks):
    def __init__(
        self,
        task: CeleryTask,
        context: SyncJobContext,
        link: Sequence[Mapping[str, Any]],
        link_error: Sequence[Mapping[str, Any]],
    ) -> None:
        self._task = task
        self._context = context
        self._link = link
        self._link_error = link_error

    def succeeded(self, result: object) -> None:
        for number, data in enumerate(self._link):
            linked = CelerySignature.from_dict(data, self._task.app)
            self._spawn(linked.clone((result,)), f"link {number}")

    def failed(self, request: CeleryRequest, error: Exception, trace: str) -> None:
        for number, data in enumerate(self._link_error):
            errback = CelerySignature.from_dict(data, self._task.app)
            local = self._task.app.tasks.get(errback.task)
            if local is not None and not errback.immutable and _takes_error(local.run, errback):
                local(request, error, trace, *errback.args, **errback.kwargs)
            else:
                self._spawn(errback.clone((request.id,)), f"link_error {number}")

    def _spawn(self, linked: CelerySignature, key: str) -> None:
        self._context.spawn(self._task.app.submission(linked), key=key)


def execute(task: CeleryTask, request: CeleryRequest, callbacks: Callbacks) -> object:
    """Run the body of a task for a request, with its hooks, retries and callbacks."""
    token = current.set(request)
    try:
        return _run(task, request, callbacks)
    finally:
        current.reset(token)


def _run(task: CeleryTask, request: CeleryRequest, callbacks: Callbacks) -> object:
    id_ = request.id or ""
    try:
        task.before_start(id_, request.args, request.kwargs)
        result = task(*request.args, **request.kwargs)
    except Retry as retry:
        return _retried(task, request, retry)
    except (JobCancelledError, StaleLeaseError, PermanentError, TemporaryError):
        raise
    except Ignore:
        _returned(task, request, "IGNORED", None, "")
        return None
    except Reject as reject:
        if reject.requeue:
            raise TemporaryError(str(reject), retry_after=1, uses_attempt=False) from None
        raise PermanentError(str(reject), code="REJECTED") from None
    except Exception as error:
        try:
            _retry_automatically(task, request, error)
        except Retry as retry:
            return _retried(task, request, retry)
        _failed(task, request, error, callbacks)
        raise
    task.on_success(result, id_, request.args, request.kwargs)
    callbacks.succeeded(result)
    _returned(task, request, "SUCCESS", result, "")
    return result


def _retried(task: CeleryTask, request: CeleryRequest, retry: Retry) -> object:
    trace = traceback.format_exc()
    task.on_retry(retry.exc or retry, request.id or "", request.args, request.kwargs, trace)
    _returned(task, request, "RETRY", retry, trace)
    code = type(retry.exc).__name__ if retry.exc is not None else "RETRY"
    if request.is_eager:
        raise retry
    raise TemporaryError(retry.message, retry_after=retry.when, code=code) from retry.exc


def _retry_automatically(task: CeleryTask, request: CeleryRequest, error: Exception) -> None:
    """Raise ``Retry`` for an error that the task retries by itself."""
    wanted = tuple(task.autoretry_for)
    if not wanted or not isinstance(error, wanted):
        return
    if isinstance(error, tuple(task.dont_autoretry_for)):
        return
    limit = task.retry_kwargs.get("max_retries", task.max_retries)
    if limit is None or request.retries < limit:
        task.retry(exc=error, countdown=task.autoretry_wait(request.retries))


def _failed(
    task: CeleryTask, request: CeleryRequest, error: Exception, callbacks: Callbacks
) -> None:
    trace = traceback.format_exc()
    task.on_failure(error, request.id or "", request.args, request.kwargs, trace)
    callbacks.failed(request, error, trace)
    _returned(task, request, "FAILURE", error, trace)


def _returned(
    task: CeleryTask, request: CeleryRequest, status: str, value: object, trace: str
) -> None:
    task.after_return(status, value, request.id or "", request.args, request.kwargs, trace)


def _refuse_expired(task: CeleryTask, context: SyncJobContext, expires: float | str | None) -> None:
    if expires is None or context.attempt > 1:
        return
    if isinstance(expires, str):
        end = datetime.fromisoformat(expires)
    else:
        end = context.created_at + timedelta(seconds=expires)
    if task.app.holdfast.clock.now() >= end:
        raise PermanentError(f"expired at {end.isoformat()}, before it started", code=EXPIRED)


def _results_before(context: SyncJobContext, after: str) -> tuple[object, ...]:
    """What the steps before this one returned: one result, a list of them, or nothing."""
    if not after:
        return ()
    results = list(context.dependency_results().values())
    return (results,) if after == "many" else tuple(results[:1])


def _takes_error(body: Callable[..., object], errback: CelerySignature) -> bool:
    """Whether a task takes a request, an exception and a traceback, as Celery's newer ones do."""
    try:
        inspect.signature(body).bind(None, None, "", *errback.args, **errback.kwargs)
    except TypeError:
        return False
    return True
