"""``Celery``: an app for code written for Celery, over a store of holdfast."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn, overload

from holdfast.app import Holdfast
from holdfast.contrib.celery import current
from holdfast.contrib.celery.canvas import Canvas, CelerySignature, signature
from holdfast.contrib.celery.conf import (
    NOT_STORES,
    STORES,
    Configuration,
    broker_scheme,
    settings_of,
)
from holdfast.contrib.celery.eager import run
from holdfast.contrib.celery.exceptions import UnsupportedError
from holdfast.contrib.celery.handler import handler_of
from holdfast.contrib.celery.options import check_task_options, task_options
from holdfast.contrib.celery.planning import submission_of, submit
from holdfast.contrib.celery.results import AnyResult, AsyncResult, known_exception
from holdfast.contrib.celery.schedules import expression_of
from holdfast.contrib.celery.task import OPTIONS, CeleryTask, make_task
from holdfast.model.submission import Submission
from holdfast.tasks.options import MAIN, natural_type
from holdfast.tasks.schedule import MissedRuns, cron_entry

BACKEND = "a job keeps its own result: AsyncResult(id), or app.holdfast.get(id)"
"""What to use in place of a result backend."""


class Celery:
    """An app with Celery's API. ``holdfast worker module:app`` runs its tasks and its beat.

    The store is ``$HOLDFAST_URL``, else ``broker``. Further keywords are those of ``Holdfast``.
    """

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Iterable[str] = (),
        config_source: object = None,
        task_cls: type[CeleryTask] = CeleryTask,
        set_as_current: bool = True,
        **options: Any,
    ) -> None:
        self.main = main
        self.tasks: dict[str, CeleryTask] = {}
        self.conf = Configuration(self._conf_changed)
        self.on_after_configure = self.on_after_finalize = _Listeners()
        self.control = CeleryControl(self)
        self.Task = task_cls
        self._options = options
        self._holdfast: Holdfast | None = None
        self._include = list(include)
        self.conf.update(broker_url=broker, result_backend=backend)
        if config_source is not None:
            self.config_from_object(config_source)
        for task in current.shared:
            self._add(task)
        if set_as_current:
            current.set_current(self)

    @property
    def holdfast(self) -> Holdfast:
        """The app in holdfast; the first use of it ends the configuration."""
        if self._holdfast is None:
            self._holdfast = Holdfast(self._url(), **self._options)
            for task in self.tasks.values():
                self._register(task)
            for module in (*self._include, *self.conf.include, *self.conf.imports):
                importlib.import_module(module)
            self.on_after_configure.call(self)
            self._schedule_all()
        return self._holdfast

    @overload
    def task(self, function: Callable[..., Any], /) -> CeleryTask: ...
    @overload
    def task(self, **options: Any) -> Callable[[Callable[..., Any]], CeleryTask]: ...
    def task(self, *functions: Callable[..., Any], **options: Any) -> Any:
        """Make a task of the decorated function, with or without options."""
        if functions:
            return self._made(functions[0], {})
        return lambda function: self._made(function, options)

    def register_task(self, task: CeleryTask | type[CeleryTask]) -> CeleryTask:
        """Add a task that is a class."""
        made = task() if isinstance(task, type) else task
        made.name = made.name or f"{type(made).__module__}.{type(made).__name__}"
        return self._add(made)

    def send_task(
        self,
        name: str,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Submit a task by its name, which this process need not know."""
        made = self.submit(CelerySignature(name, args or (), kwargs, options, app=self))
        assert isinstance(made, AsyncResult)
        return made

    def submit(self, canvas: Canvas) -> AnyResult:
        """Submit a canvas and return its result; with ``task_always_eager`` run it here."""
        return run(self, canvas) if self.conf.task_always_eager else submit(self, canvas)

    def run(self, canvas: Canvas) -> AnyResult:
        """Run a canvas here and now and return its result."""
        return run(self, canvas)

    def submission(self, sig: CelerySignature) -> Submission:
        """Return the submission of one task."""
        return submission_of(self, sig)

    def signature(self, *given: Any, **more: Any) -> Canvas:
        """Return a signature for a task of this app."""
        return signature(*given, app=self, **more)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802  # Celery's name
        """Return the result of a task by its id."""
        return AsyncResult(task_id, app=self)

    def config_from_object(self, source: object, *, namespace: str | None = None, **_: Any) -> None:
        """Read settings from a module, an object or a mapping."""
        if isinstance(source, str) and source == "django.conf:settings":
            namespace = namespace or "CELERY"
        self.conf.update(settings_of(source, namespace))

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str = "tasks",
        **_: object,
    ) -> None:
        """Import the module ``tasks`` of packages; of Django's apps, if none is given."""
        for package in _packages(packages):
            name = f"{package}.{related_name}"
            if importlib.util.find_spec(package) and importlib.util.find_spec(name):
                importlib.import_module(name)

    def add_periodic_task(
        self,
        schedule: object,
        sig: CelerySignature,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Submit a task at the times of a schedule, and return the name of the schedule."""
        made = sig.clone(args, kwargs, **options)
        return self._schedule(name or repr(made), schedule, made)

    def exception(self, task: str, code: str, message: str) -> Exception:
        """Return the exception that a task raised, as a class that its module knows."""
        known = self.tasks.get(task)
        body = inspect.unwrap(known.run) if known is not None else None
        return known_exception(getattr(body, "__globals__", {}), code, message)

    @property
    def backend(self) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("app.backend", BACKEND)

    def worker_main(self, *_: object) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("worker_main", "run: holdfast worker MODULE:APP")

    start = worker_main

    def _made(self, function: Callable[..., Any], options: Mapping[str, Any]) -> CeleryTask:
        given = dict(options)
        base, bind = given.pop("base", None) or self.Task, bool(given.pop("bind", False))
        name = given.pop("name", None) or self._name(function)
        check_task_options(given, OPTIONS)
        task = make_task(base, function, given, bind=bind)
        task.name = name
        return self._add(task)

    def _name(self, function: Callable[..., Any]) -> str:
        if function.__module__ == MAIN and self.main:
            return f"{self.main}.{function.__name__}"
        return natural_type(function)

    def _add(self, task: CeleryTask) -> CeleryTask:
        if task not in current.shared:
            task.bound_app = self
        self.tasks[task.name] = task
        if self._holdfast is not None:
            self._register(task)
        return task

    def _register(self, task: CeleryTask) -> None:
        assert self._holdfast is not None
        given = {name: getattr(task, name) for name in OPTIONS}
        options = task_options(given, self.conf)
        if "queue" not in options:
            options["queue"] = self.conf.task_default_queue
        self._holdfast.task(task.name, replace=True, **options)(handler_of(task))

    def _conf_changed(self, name: str) -> None:
        if self._holdfast is None:
            return
        if name == "beat_schedule":
            self._schedule_all()
        elif name == "broker_url":
            raise UnsupportedError("another broker_url", "set it before the first use of the app")

    def _schedule_all(self) -> None:
        for name, entry in self.conf.beat_schedule.items():
            sig = CelerySignature(
                entry["task"], entry.get("args") or (), entry.get("kwargs"), entry.get("options")
            )
            self._schedule(name, entry["schedule"], sig)

    def _schedule(self, name: str, schedule: object, sig: CelerySignature) -> str:
        job = submission_of(self, sig)
        options: Any = {"queue": job.queue, "priority": job.priority, "headers": job.headers}
        entry = cron_entry(
            name,
            sig.task,
            expression_of(schedule),
            str(self.conf.timezone or "UTC"),
            MissedRuns.ONE,
            job.payload,
            {key: value for key, value in options.items() if value is not None},  # type: ignore[arg-type]  # as of SubmitOptions
        )
        self.holdfast.crons[name] = entry
        return name

    def _url(self) -> str | None:
        given = os.environ.get("HOLDFAST_URL") or self.conf.broker_url
        if given is None:
            return None
        if (scheme := broker_scheme(given)) in NOT_STORES:
            raise UnsupportedError(f"a broker of {scheme}", STORES)
        return str(given).removeprefix("sqla+").removeprefix("db+")

    def __repr__(self) -> str:
        return f"<Celery {self.main or '__main__'}>"


class CeleryControl:
    """``app.control``: cancels tasks. The rest is in ``holdfast workers`` and the operator API."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def revoke(self, task_id: str | Iterable[str], *, terminate: bool = False, **_: object) -> None:
        """Cancel tasks; with ``terminate`` also interrupt those that run."""
        for one in [task_id] if isinstance(task_id, str) else task_id:
            self._app.AsyncResult(one).revoke(terminate=terminate)

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedError(
            f"control.{name}", "see holdfast workers, holdfast queues and app.holdfast"
        )


class _Listeners:
    """A signal: functions that are called with the app when its configuration ends."""

    def __init__(self) -> None:
        self._functions: list[Callable[..., Any]] = []

    def connect(self, *functions: Callable[..., Any], **_: object) -> Any:
        """Call the decorated function; with or without parentheses."""
        if not functions:
            return self.connect
        self._functions.append(functions[0])
        return functions[0]

    def call(self, sender: Celery) -> None:
        """Call all functions, once."""
        functions, self._functions = self._functions, []
        for function in functions:
            function(sender)


@overload
def shared_task(function: Callable[..., Any], /) -> CeleryTask: ...
@overload
def shared_task(**options: Any) -> Callable[[Callable[..., Any]], CeleryTask]: ...
def shared_task(*functions: Callable[..., Any], **options: Any) -> Any:
    """Make a task of the decorated function that belongs to whichever app is made."""
    if not functions:
        return lambda function: _shared(function, options)
    return _shared(functions[0], {})


def _shared(function: Callable[..., Any], options: Mapping[str, Any]) -> CeleryTask:
    given = dict(options)
    base, bind = given.pop("base", None) or CeleryTask, bool(given.pop("bind", False))
    name = given.pop("name", None) or natural_type(function)
    check_task_options(given, OPTIONS)
    task = make_task(base, function, given, bind=bind)
    task.name = name
    current.shared.append(task)
    if current.has_current():
        current.current_app().register_task(task)
    return task


def _packages(given: Iterable[str] | Callable[[], Iterable[str]] | None) -> list[str]:
    if callable(given):
        return list(given())
    if given is not None:
        return list(given)
    try:
        apps: ModuleType = importlib.import_module("django.apps")
    except ModuleNotFoundError:
        raise UnsupportedError("autodiscover_tasks() without Django", "name the packages") from None
    return [config.name for config in apps.apps.get_app_configs()]
