"""Celery's tasks: functions and classes that are called with ``delay`` and ``apply_async``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec

from holdfast.contrib.celery.canvas import CelerySignature
from holdfast.contrib.celery.current import current_app
from holdfast.contrib.celery.exceptions import MaxRetriesExceededError, Retry, UnsupportedError
from holdfast.contrib.celery.request import CeleryRequest, current

if TYPE_CHECKING:
    from holdfast.contrib.celery.interface import CeleryApp
    from holdfast.contrib.celery.results import AnyResult, AsyncResult

UNSET: Any = object()

OPTIONS = (
    "autoretry_for",
    "concurrency",
    "default_retry_delay",
    "dont_autoretry_for",
    "key_limit",
    "lease",
    "lifetime",
    "max_retries",
    "memory_limit",
    "priority",
    "queue",
    "rate_limit",
    "retry_backoff",
    "retry_backoff_max",
    "retry_jitter",
    "retry_kwargs",
    "runner",
    "time_limit",
    "typing",
)
"""Attributes of a task class that options of ``@app.task`` set."""


class CeleryTask:
    """A task. Subclasses may define ``run`` and the hooks, and options as class attributes."""

    name: str = ""
    abstract: ClassVar[bool] = True
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    retry_kwargs: Mapping[str, Any] = {}
    retry_backoff: bool | float = False
    retry_backoff_max: float = 600
    retry_jitter: bool = True
    rate_limit: str | float | None = None
    time_limit: float | None = None
    queue: str | None = None
    priority: int | None = None
    typing: bool = True
    runner: str | None = None
    concurrency: int | None = None
    key_limit: Any = None
    memory_limit: int | None = None
    lease: Any = None
    lifetime: Any = None
    bound_app: CeleryApp | None = None

    @property
    def app(self) -> CeleryApp:
        """The app that the task belongs to."""
        return self.bound_app or current_app()

    @property
    def request(self) -> CeleryRequest:
        """The call that runs now."""
        return current.get()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The body of the task."""
        raise NotImplementedError("a task class defines run")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body as a plain function."""
        return self.run(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Submit a job that runs the task with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Submit a job with arguments and options; TypeError when the arguments do not fit."""
        self.check_arguments(tuple(args or ()), kwargs or {})
        made: AsyncResult = self.app.submit(self.signature(args or (), kwargs, **options))
        return made

    def apply(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AnyResult:
        """Run the task here and now, with its retries; returns an EagerResult."""
        return self.signature(args or (), kwargs, **options).apply()

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError for arguments that the body cannot be called with."""
        if self.typing:
            inspect.signature(self.run).bind(*args, **kwargs)

    def signature(
        self,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> CelerySignature:
        """Return a call of this task, to be joined with others or submitted later."""
        return CelerySignature(
            self.name, args, kwargs, options, immutable=immutable, app=self.bound_app
        )

    subtask = signature

    def s(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """Return a call with these arguments; a task before it adds its result in front."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> CelerySignature:
        """Return a call with exactly these arguments."""
        return self.signature(args, kwargs, immutable=True)

    def retry(
        self,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = UNSET,
    ) -> Retry:
        """End this run, and run the task again later. Raises ``Retry`` unless ``throw`` is false.

        When the task was retried as often as it may be, ``exc`` is raised, or
        ``MaxRetriesExceededError``.
        """
        request = self.request
        if request.called_directly and exc is not None:
            raise exc
        limit = self._limit(max_retries)
        if limit is not None and request.retries >= limit:
            raise exc or MaxRetriesExceededError(
                f"cannot retry {self.name}[{request.id}]: it was retried {limit} times"
            )
        if request.context is not None and (args is not None or kwargs is not None):
            new = (list(request.args if args is None else args), dict(kwargs or request.kwargs))
            request.context.checkpoint(msgspec.to_builtins(new))
        when = self._wait(eta, countdown)
        reason = f"{type(exc).__name__}: {exc}" if exc is not None else "retry"
        retry = Retry(f"retry in {when:g} s: {reason}", exc, when)
        if throw:
            raise retry from exc
        return retry

    def _limit(self, given: int | None) -> int | None:
        if given is UNSET:
            return self.max_retries
        if self.max_retries is not None and (given is None or given > self.max_retries):
            raise UnsupportedError(
                f"retry(max_retries={given}) above the task's {self.max_retries}",
                "declare max_retries with the task: the limit is part of the job",
            )
        return given

    def _wait(self, eta: datetime | None, countdown: float | None) -> float:
        if countdown is not None:
            return float(countdown)
        if eta is not None:
            left: timedelta = eta - self.app.holdfast.clock.now()
            return max(0.0, left.total_seconds())
        return float(self.default_retry_delay)

    def autoretry_wait(self, retries: int) -> float:
        """Return the seconds before an automatic retry."""
        if not self.retry_backoff:
            return float(self.retry_kwargs.get("countdown", self.default_retry_delay))
        factor = 1 if self.retry_backoff is True else int(self.retry_backoff)
        longest = min(float(self.retry_backoff_max), float(factor * 2**retries))
        return longest * self.app.holdfast.randomness.fraction() if self.retry_jitter else longest

    def update_state(
        self, task_id: str | None = None, state: str = "PROGRESS", meta: object = None
    ) -> None:
        """Report a state of the task's own, with data: ``AsyncResult.state`` and ``.info``."""
        if task_id not in (None, self.request.id):
            raise UnsupportedError("update_state of another task", "a task reports its own state")
        context = self.request.context
        if context is not None:
            text = msgspec.json.encode({"state": state, "meta": meta}).decode()
            context.report_progress(_percent(meta), text)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802  # Celery's name
        """Return the result of a job by its id."""
        made: AsyncResult = self.app.AsyncResult(task_id)
        return made

    def replace(self, *_: object) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError(
            "replace", "spawn jobs with ctx.spawn and ctx.wait_for_children in a holdfast task"
        )

    add_to_chord = replace

    def map(self, *_: object) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("map", "submit group(task.s(item) for item in items)")

    def starmap(self, *_: object) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("starmap", "submit group(task.s(*item) for item in items)")

    def chunks(self, *_: object) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("chunks", "submit a group of tasks that each take a list")

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """A hook: called before the task runs."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """A hook: called when the task has returned."""

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """A hook: called when the task has failed; ``einfo`` is the traceback as text."""

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """A hook: called when the task will run again."""

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """A hook: called after each run."""

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"


def make_task(
    base: type[CeleryTask], function: Callable[..., Any], options: Mapping[str, Any], *, bind: bool
) -> CeleryTask:
    """Return a task whose body is a function; with ``bind`` it receives the task first."""
    attributes: dict[str, Any] = {
        "run": function if bind else staticmethod(function),
        "abstract": False,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__wrapped__": staticmethod(function),
        **{name: value for name, value in options.items() if name in OPTIONS},
    }
    made: CeleryTask = type(function.__name__, (base,), attributes)()
    return made


def _percent(meta: object) -> int:
    """The progress in what a task reports, by the keys that Celery's examples use."""
    if isinstance(meta, Mapping):
        done, total = meta.get("current", meta.get("done")), meta.get("total")
        if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
            return int(max(0, min(100, 100 * done / total)))
    return 0
