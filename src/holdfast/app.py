"""The app: registered tasks and the client operations, over one store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack, cast, overload

from msgspec import structs

from holdfast.encryption import KeyRing, encrypted, mark_encrypted
from holdfast.errors import Fault, StoreError, ValidationError
from holdfast.model.policy import Limits, Retention
from holdfast.model.profiles import Profile, profile_named
from holdfast.model.results import (
    RegistrationResult,
    RegistrationStatus,
)
from holdfast.model.submission import SubmitOptions
from holdfast.observe.redaction import Redaction
from holdfast.operations.admission import Admission
from holdfast.operations.declarations import Declarations
from holdfast.operations.environment import from_environment
from holdfast.operations.interface import JobOperations, OperationsBackend
from holdfast.operations.name_quota import NameQuota
from holdfast.operations.operations import Operations
from holdfast.operations.quota import Quota
from holdfast.operations.submitter import Submitter
from holdfast.operations.sync import Home, SyncOperations
from holdfast.operations.waiter import JobWaiter
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.importing import check_not_importing
from holdfast.runtime.randomness import Randomness
from holdfast.store import DEFAULT_URL, Store, open_store
from holdfast.tasks.app_seams import AppSeams
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.options import TaskOptions, given_options, handler_options, natural_type
from holdfast.tasks.registry import Function, HandlerOptions, Registry
from holdfast.tasks.schedule import CronEntry, MissedRuns, cron_entry
from holdfast.tasks.task import Task, TaskDecorator
from holdfast.webhooks import AddressGuard, CallbackScreen, Webhooks, WebhookSettings

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast(AppSeams, JobOperations):
    """A job queue: register tasks, submit jobs, read and manage them.

    ``url`` names the store; without it ``$HOLDFAST_URL``, else a SQLite file in the current
    directory. ``queues`` gives queues a profile by name (standard, lease, document, bullmq).
    ``keys`` (else ``$HOLDFAST_ENCRYPTION_KEYS``) encrypt the contents of jobs in the store;
    ``redaction`` masks secrets in error texts and logs, ``webhooks`` are their settings,
    ``version`` (else ``$HOLDFAST_APP_VERSION``) is what workers report as the app's.
    Use it as ``async with app:`` or call ``start`` and ``close``; ``app.sync`` is the same
    for blocking code.
    """

    import_path: str | None = None
    """Where a new process finds the app, module:name; None looks for it in loaded modules."""

    def __init__(  # noqa: PLR0913  # one keyword per part of an app
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        queues: Mapping[str, Profile | str] | None = None,
        limits: Limits | None = None,
        retention: Retention | None = None,
        keys: KeyRing | None = None,
        redaction: Redaction | None = None,
        webhooks: WebhookSettings | None = None,
        version: str = "",
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.url = url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL
        self.version = version or os.environ.get("HOLDFAST_APP_VERSION", "")
        self.clock = clock or SystemClock()
        self.randomness = randomness or Randomness()
        given = from_environment()
        self.limits = limits or given.limits
        self.retention = retention or given.retention
        self.keys = keys or KeyRing.from_environment()
        self.redaction = redaction or Redaction.from_environment()
        self.webhook_settings = webhooks or given.webhooks
        named = {queue: profile_named(profile) for queue, profile in (queues or {}).items()}
        self.registry = Registry({**given.profiles, **named}, self.limits)
        self.registry.seams.app = self
        self.crons: dict[str, CronEntry] = {}
        self._clock_given = clock
        self._own_store = None if store is None else encrypted(store, self.keys)
        if store is None and self.url.startswith("memory:"):
            self._own_store = self.open_store()
        self._operations: OperationsBackend | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self._sync: SyncOperations | None = None

    async def start(self) -> Self:
        """Open the store; every ``start`` needs its own ``close``."""
        if self._operations is None:
            check_not_importing()
            self._operations = await self.open_operations()
            self._loop = asyncio.get_running_loop()
        self._users += 1
        return self

    async def close(self) -> None:
        """Finish pending writes and, with the last user, close the store."""
        self._users = max(0, self._users - 1)
        if self._operations is not None and self._users == 0:
            operations, self._operations = self._operations, None
            await operations.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        """The open store; StoreError when the app's URL is that of a service."""
        operations = self.operations
        if isinstance(operations, Operations):
            return operations.store
        raise StoreError("this needs the store itself: give its URL instead of the service's")

    @property
    def shares_store(self) -> bool:
        """Whether the store lives in this process and loop and cannot be opened twice."""
        return self._own_store is not None

    def open_store(self) -> Store:
        """Return another connection to the app's store, not yet started."""
        if self._own_store is not None:
            return self._own_store
        store = open_store(self.url, clock=self._clock_given)
        return encrypted(store, self.keys)

    @property
    def home(self) -> Home | None:
        """The loop and operations for blocking callers, if the started app shares its store."""
        if self.shares_store and self._operations is not None and self._loop is not None:
            return self._loop, self._operations
        return None

    @property
    def sync(self) -> SyncOperations:
        """The same operations for blocking code: scripts, threads, Flask, Django."""
        if self._sync is None:
            self._sync = SyncOperations(self)
        return self._sync

    @property
    def webhooks(self) -> Webhooks:
        """Addresses to notify when jobs end: add, list, remove, rotate, deliveries, resend."""
        return self.webhooks_over(self.operations)

    def webhooks_over(self, operations: OperationsBackend) -> Webhooks:
        """Return the webhooks of the store or service of these operations."""
        if isinstance(operations, Operations):
            guard = AddressGuard(self.webhook_settings.allow)
            submitter = self.internal_submitter(operations.store)
            return Webhooks(operations, guard, self.randomness, submitter)
        from holdfast.client import webhooks_over

        return webhooks_over(operations)

    @property
    def _is_remote(self) -> bool:
        return self._own_store is None and self.url.startswith(("http://", "https://"))

    async def open_operations(self) -> OperationsBackend:
        """Open the app's store, or connect to its service, and return the operations there."""
        if self._is_remote:
            from holdfast.client.operations import RemoteOperations

            return RemoteOperations(
                self.url,
                randomness=self.randomness,
                misfit=self.registry.misfit,
                middleware=self.registry.seams.middleware,
            )
        store = await self.open_store().start()
        try:
            await mark_encrypted(store, self.keys)
        except BaseException:
            await store.close()
            raise
        return self.over(store)

    def over(
        self,
        store: Store,
        *,
        waiter: JobWaiter | None = None,
        declarations: Declarations | None = None,
        names: NameQuota | None = None,
        as_text: bool = False,
    ) -> Operations:
        """Return the operations of this app over a store that is already started.

        ``as_text`` leaves payloads and results undecoded, for a service that only sends them on.
        """
        admission = Admission(store, Quota(store, self.limits, self.clock), names)
        declared = declarations or self.declarations(store)
        submitter = Submitter(
            store, self.randomness, self.limits, declared, admission, self._callbacks
        )
        return Operations(store, submitter, waiter=waiter, as_text=as_text)

    def submitter(
        self,
        store: Store,
        declarations: Declarations | None = None,
        *,
        screens: bool = True,
        names: NameQuota | None = None,
    ) -> Submitter:
        """Return a submitter for jobs that running jobs or schedules add: only names are limited.

        ``screens`` is whether it refuses callback addresses whose delivery will be refused.
        """
        declared = declarations or self.declarations(store)
        admission = Admission(store, names=names)
        callbacks = self._callbacks if screens else None
        return Submitter(store, self.randomness, self.limits, declared, admission, callbacks)

    def declarations(self, store: Store) -> Declarations:
        """Return the defaults of jobs: those that this app declares, else those published."""
        return Declarations(store, self.registry, self.limits, self.clock)

    @cached_property
    def _callbacks(self) -> CallbackScreen:
        return CallbackScreen(AddressGuard(self.webhook_settings.allow))

    def internal_submitter(self, store: Store) -> Submitter:
        """Return a submitter for jobs that holdfast makes itself, under its own names."""
        registry = Registry({}, self.limits, internal=True)
        declared = Declarations(store, registry, self.limits, self.clock)
        return Submitter(store, self.randomness, self.limits, declared)

    @overload
    def task(
        self, type_: str | None = None, *, replace: bool = False, **options: Unpack[TaskOptions]
    ) -> TaskDecorator: ...
    @overload
    def task(self, type_: Callable[Concatenate[JobContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, type_: Callable[Concatenate[SyncJobContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, type_: Callable[P, R], /) -> Task[P, R]: ...
    def task(
        self,
        type_: str | Callable[..., R] | None = None,
        *,
        replace: bool = False,
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator | Task[..., R]:
        """Register the decorated function as the handler of a job type.

        Without a type, or as plain ``@app.task``, the type is the name of the module and of the
        function. A type that is registered already is refused unless ``replace`` is set. Two
        decorators over one function register both types; the upper one takes the options of
        the lower one where it gives none.

        The options are defaults of the type's jobs, which each job may override, except where
        they run: ``runner`` (async for coroutines, thread for plain functions, process for
        CPU-bound or unresponsive ones), ``concurrency`` per worker process, ``limit`` and
        ``key_limit`` across all workers. ``permanent`` exceptions are not retried.
        ``backoff`` may be a function ``(attempt, initial_delay, max_delay)`` that returns the
        delay: a timedelta or seconds.
        """
        if callable(type_):
            return self._decorated(None, type_, HandlerOptions(), replace=False)
        read = handler_options(**options)

        def decorate(function: Callable[..., R]) -> Task[..., R]:
            return self._decorated(type_, function, read, replace=replace)

        return decorate  # type: ignore[return-value]  # the protocol is more precise

    def _decorated(
        self, type_: str | None, given: Callable[..., R], options: HandlerOptions, *, replace: bool
    ) -> Task[..., R]:
        function: Callable[..., R] = given
        if isinstance(given, Task):
            function = given.function
            if (alias := self.registry.get(given.type)) is not None:
                options = structs.replace(alias.options, **given_options(options))
        type_ = natural_type(function) if type_ is None else type_
        if type_ in self.registry and not replace:
            message = f"{type_!r} is registered already: choose another type or give replace=True"
            raise ValidationError([Fault("task", "DUPLICATE", message)])
        result = self.registry.register(type_, function, options)
        if result.status is RegistrationStatus.INVALID:
            raise ValidationError([Fault("task", "INVALID", f"{type_!r}: {result.message}")])
        return Task(self, type_, function)

    def register(
        self,
        type_: str,
        handler: Function,
        *,
        options: HandlerOptions | None = None,
        **given: Unpack[TaskOptions],
    ) -> RegistrationResult:
        """Register a handler, in place of the previous one of its type if there is one.

        The keywords are those of ``task``: ``timeout``, ``max_attempts``, ``concurrency`` and
        more. An invalid handler or value is reported by the result, not by an exception.
        """
        try:
            read = handler_options(**given)
        except ValidationError as error:
            return self.registry.refused(type_, str(error))
        if options is not None:
            read = structs.replace(options, **given_options(read))
        return self.registry.register(type_, handler, read)

    def handler(
        self,
        queue: str,
        name: str | None = None,
        /,
        *,
        replace: bool = False,
        **options: Unpack[TaskOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Register the decorated function for jobs of a queue that other programs submit.

        ``name`` may be any name that BullMQ accepts, with colons and spaces. Without it the
        function is the queue's catch-all: it receives every job whose type has no handler, and
        ``context.type`` is the type. A worker with a catch-all claims all jobs of the queue, so
        that the ``concurrency`` of single tasks does not bound them there. The options are
        those of ``task``. A second handler is refused unless ``replace`` is set.
        """
        read = handler_options(**options)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            taken = queue in self.registry.catch_alls if name is None else name in self.registry
            if taken and not replace:
                what = f"a catch-all of queue {queue!r}" if name is None else repr(name)
                message = f"{what} is registered already: give replace=True"
                raise ValidationError([Fault("handler", "DUPLICATE", message)])
            result = self.registry.register_for_queue(queue, name, function, read)
            if result.status is RegistrationStatus.INVALID:
                raise ValidationError([Fault("handler", "INVALID", result.message)])
            return function

        return decorate

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        payload: object = None,
        missed: MissedRuns | str = MissedRuns.ONE,
        **options: Unpack[SubmitOptions],
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Submit the decorated task at the times of a cron expression.

        There is exactly one job per tick, however many workers run. ``missed`` decides about
        ticks that passed while no worker ran: ``skip``, ``one`` (the newest) or ``all``.
        ValidationError when ``payload`` does not fit the task, as without a required argument.
        """

        def decorate(task: Task[P, R]) -> Task[P, R]:
            # A plain function is a common mistake.
            if not isinstance(cast("object", task), Task):
                message = "must decorate a task: write @app.cron above @app.task"
                raise ValidationError([Fault("cron", "INVALID", message)])
            task.must_fit(payload)
            if fault := self._callbacks.fault(options.get("callback_url")):
                raise ValidationError([fault])
            entry = cron_entry(
                name or task.type, task.type, expression, tz, MissedRuns(missed), payload, options
            )
            self.crons[entry.name] = entry
            return task

        return decorate

    @property
    def operations(self) -> OperationsBackend:
        if self._operations is None:
            raise RuntimeError("the app is not started: use 'async with app:' or app.sync")
        return self._operations
