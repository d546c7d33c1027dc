"""Registered functions: what a worker calls for a job type, and the defaults of its jobs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

import msgspec

from holdfast.errors import Fault
from holdfast.model.job import Encoding, FailureCategory, Job
from holdfast.model.policy import (
    MAX_ATTEMPTS,
    CustomDelay,
    Limits,
    effective_timeout,
    timeout_fault,
)
from holdfast.model.profiles import Profile
from holdfast.model.reserved import is_internal, refusal
from holdfast.model.results import RegistrationResult, RegistrationStatus
from holdfast.model.submission import (
    BULLMQ_NAME_RULE,
    BULLMQ_QUEUE_RULE,
    QUEUE_RULE,
    TYPE_RULE,
    Declaration,
)
from holdfast.model.workers import catch_all_name
from holdfast.store import LimitRule
from holdfast.tasks.depends import SignatureError
from holdfast.tasks.seams import Seams
from holdfast.tasks.signature import Signature
from holdfast.tasks.upgrades import OnMismatch, Upgrade, upgraded, version_faults

Function = Callable[..., object]

Reach = tuple[tuple[str, ...], tuple[str, ...] | None]
"""Queues, and the types of their jobs that have a handler; None for all types."""


class RunnerKind(StrEnum):
    """Where a handler runs."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


class HandlerOptions(Declaration, frozen=True, kw_only=True):
    """The options of a registration: where its jobs run, and their defaults."""

    custom_backoff: CustomDelay | None = None
    runner: RunnerKind | None = None
    concurrency: int | None = None
    """How many of this task one worker process runs at once."""
    limit: LimitRule | None = None
    """How many of this task run at once, or start per time, across all workers."""
    key_limit: LimitRule | None = None
    """The same, for each ``limit_key`` separately."""
    permanent: tuple[type[BaseException], ...] = ()
    """Exceptions that are not retried."""
    temporary: tuple[type[BaseException], ...] = ()
    """Exceptions to retry although a broader class is in ``permanent``."""
    memory_limit: int | None = None
    """Bytes of address space a child of the process runner may use."""
    aliases: tuple[str, ...] = ()
    """Earlier types of the task, whose jobs it runs as well."""
    upgrades: Mapping[int, Upgrade] = {}
    """For each earlier version, the function that makes its payloads those of the next one."""
    on_mismatch: OnMismatch = OnMismatch.WAIT
    """What happens to a job whose payload does not fit."""

    @property
    def declaration(self) -> Declaration:
        """The part that concerns every submitter of a job."""
        return Declaration(**{name: getattr(self, name) for name in _DECLARED})


_DECLARED = Declaration.__struct_fields__


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function, ready to be called."""

    type: str
    function: Function
    runner: RunnerKind
    signature: Signature
    options: HandlerOptions
    timeout: timedelta
    """The longest that it may run, whatever a job requests: its own timeout or the system's."""
    seams: Seams
    """The middleware and resources of its app."""
    wants_context: bool
    """Whether the function takes a context, or has dependencies, which may take it."""

    def unpack(self, job: Job) -> dict[str, object]:
        """Return the arguments in a payload; MismatchError when it does not fit the task."""
        if job.extra is not None or self.options.version != 1:
            job = upgraded(job, self.options.version, self.options.upgrades)
        return self.signature.unpack(job)

    def category(self, error: BaseException) -> FailureCategory:
        """Classify an exception that is not one of holdfast's own."""
        if isinstance(error, self.options.temporary):
            return FailureCategory.TEMPORARY
        if isinstance(error, self.options.permanent):
            return FailureCategory.PERMANENT
        if isinstance(error, MemoryError):
            return FailureCategory.SYSTEM
        return FailureCategory.TEMPORARY


class Registry:
    """The handlers of an app, by job type."""

    def __init__(
        self, profiles: Mapping[str, Profile], limits: Limits, *, internal: bool = False
    ) -> None:
        self.internal = internal
        """Whether its jobs are those that holdfast makes itself."""
        self.profiles = profiles
        """The profiles of queues that the app itself declares."""
        self.version = 0
        """Changes with every registration."""
        self.seams = Seams()
        """The middleware and resources of the app."""
        self._limits = limits
        self._handlers: dict[str, Handler] = {}
        self.catch_alls: dict[str, Handler] = {}
        """The handlers of all other jobs of a queue, by queue."""

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())

    def __contains__(self, type_: str) -> bool:
        return type_ in self._handlers

    def __getitem__(self, type_: str) -> Handler:
        return self._handlers[type_]

    def get(self, type_: str) -> Handler | None:
        """Return the handler of a type, if one is registered."""
        return self._handlers.get(type_)

    def handler_of(self, job: Job) -> Handler:
        """Return the handler of a claimed job, which has one."""
        return self._handlers.get(job.type) or self.catch_alls[job.queue]

    def for_job(self, job: Job) -> Handler | None:
        """Return the handler of a job: that of its type, else the catch-all of its queue."""
        return self._handlers.get(job.type) or self.catch_alls.get(job.queue)

    def reach(self, queues: Sequence[str]) -> list[Reach]:
        """Return which types of which queues have a handler; None means all of them."""
        others = tuple(queue for queue in queues if queue not in self.catch_alls)
        found: list[Reach] = []
        if len(others) < len(queues):
            found.append((tuple(queue for queue in queues if queue in self.catch_alls), None))
        if others and self._handlers:
            found.append((others, tuple(self._handlers)))
        return found

    @property
    def served(self) -> tuple[str, ...]:
        """What a worker announces: the types, and queue:* for a catch-all."""
        return (*self._handlers, *(catch_all_name(queue) for queue in self.catch_alls))

    def register(
        self, type_: str, function: Function, options: HandlerOptions
    ) -> RegistrationResult:
        """Register a function for a type; the result says whether it replaced another."""
        if not _matches(TYPE_RULE, type_):
            return self.refused(type_, f"type must match {TYPE_RULE.pattern}, got {type_!r:.60}")
        return self._register(self._handlers, type_, function, options, queue_rule=QUEUE_RULE)

    def register_for_queue(
        self, queue: str, name: str | None, function: Function, options: HandlerOptions
    ) -> RegistrationResult:
        """Register a function for jobs of BullMQ clients: of any name, or for all other jobs."""
        if not _matches(BULLMQ_QUEUE_RULE, queue):
            return self.refused(queue, f"queue must match {BULLMQ_QUEUE_RULE.pattern}")
        options = msgspec.structs.replace(options, queue=queue)
        rule = BULLMQ_QUEUE_RULE
        if name is None:
            return self._register(self.catch_alls, queue, function, options, queue_rule=rule)
        if not _matches(BULLMQ_NAME_RULE, name):
            message = (
                f"name must be 1 to 1024 characters without control characters, got {name!r:.60}"
            )
            return self.refused(name, message)
        return self._register(self._handlers, name, function, options, queue_rule=rule)

    def _register(
        self,
        handlers: dict[str, Handler],
        type_: str,
        function: Function,
        options: HandlerOptions,
        *,
        queue_rule: re.Pattern[str],
    ) -> RegistrationResult:
        previous = type_ in handlers
        message = _problem(function, options, self._limits, queue_rule) or self._reserved_name(
            type_, options.queue or ""
        )
        message = message or self._alias_problem(handlers, type_, options.aliases)
        if not message:
            try:
                signature = Signature(function)
            except SignatureError as error:
                message = str(error)
        if message:
            return self.refused(type_, message)
        self.version += 1
        handlers[type_] = Handler(
            type=type_,
            function=function,
            runner=options.runner or _natural_runner(function),
            signature=signature,
            options=options,
            timeout=effective_timeout(options.timeout, self._limits.timeout),
            seams=self.seams,
            wants_context=signature.context is not None or bool(signature.dependencies),
        )
        for alias in options.aliases:
            handlers[alias] = msgspec.structs.replace(handlers[type_], type=alias)
        status = RegistrationStatus.REPLACED if previous else RegistrationStatus.REGISTERED
        return RegistrationResult(type=type_, status=status, previous=previous)

    def _alias_problem(
        self, handlers: Mapping[str, Handler], type_: str, aliases: Sequence[str]
    ) -> str:
        for alias in aliases:
            if not _matches(TYPE_RULE, alias):
                return f"aliases must match {TYPE_RULE.pattern}, got {alias!r:.60}"
            holder = handlers.get(alias)
            if alias == type_ or (holder and alias not in holder.options.aliases):
                return f"aliases: {alias!r} is registered already"
        return ""

    def _reserved_name(self, type_: str, queue: str) -> str:
        for field, name in (("type", type_), ("queue", queue)):
            if is_internal(name) and not self.internal:
                return f"{field} {refusal(name)}"
        return ""

    def refused(self, type_: object, message: str) -> RegistrationResult:
        """Return the result for a handler that was not registered."""
        return RegistrationResult(
            type=str(type_),
            status=RegistrationStatus.INVALID,
            previous=type_ in self._handlers,
            message=message,
        )

    def misfit(self, type_: str, payload: bytes, encoding: Encoding) -> str:
        """Return why a payload does not fit a type; an empty text when it does, or none knows."""
        handler = self._handlers.get(type_)
        return handler.signature.misfit(payload, encoding) if handler else ""


def is_coroutine(function: Function) -> bool:
    """Whether calling a function returns an awaitable."""
    call = getattr(function, "__call__", None)  # noqa: B004  # an object may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _natural_runner(function: Function) -> RunnerKind:
    return RunnerKind.ASYNC if is_coroutine(function) else RunnerKind.THREAD


def _problem(
    function: object, options: HandlerOptions, limits: Limits, queue_rule: re.Pattern[str]
) -> str:
    if not callable(function):
        return f"handler must be callable, got {function!r:.60}"
    faults = [fault for fault in _option_faults(options, limits, queue_rule) if fault is not None]
    if options.runner is RunnerKind.ASYNC and not is_coroutine(function):
        faults.append(Fault("runner", "INVALID", "async needs a coroutine function"))
    if options.runner is RunnerKind.THREAD and is_coroutine(function):
        faults.append(Fault("runner", "INVALID", "thread needs a plain function"))
    return "; ".join(map(str, faults))


def _option_faults(
    options: HandlerOptions, limits: Limits, queue_rule: re.Pattern[str]
) -> Iterator[Fault | None]:
    attempts, concurrency, queue = options.max_attempts, options.concurrency, options.queue
    if attempts is not None and not (_is_number(attempts) and 1 <= attempts <= MAX_ATTEMPTS):
        message = f"must be between 1 and {MAX_ATTEMPTS}, got {attempts!r:.60}"
        yield Fault("max_attempts", "OUT_OF_RANGE", message)
    if concurrency is not None and not (_is_number(concurrency) and concurrency >= 1):
        yield Fault("concurrency", "OUT_OF_RANGE", f"must be at least 1, got {concurrency!r:.60}")
    if queue is not None and not _matches(queue_rule, queue):
        yield Fault("queue", "INVALID", f"must match {queue_rule.pattern}, got {queue!r:.60}")
    if options.timeout is not None and options.timeout <= timedelta(0):
        yield Fault("timeout", "OUT_OF_RANGE", "must be above 0")
    if options.timeout is not None:
        yield timeout_fault(options.timeout, limits.timeout)
    if options.backoff is not None:
        yield from options.backoff.faults()
    yield from version_faults(options.version, options.upgrades)
    yield from _limit_faults(limit=options.limit, key_limit=options.key_limit)


def _limit_faults(**rules: object) -> Iterator[Fault]:
    for name, rule in rules.items():
        if isinstance(rule, LimitRule):
            for fault in rule.faults():
                yield Fault(f"{name}.{fault.field}", fault.code, fault.message)
        elif rule is not None:
            yield Fault(name, "INVALID", f"must be a LimitRule, got {rule!r:.60}")


def _matches(rule: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and rule.fullmatch(value) is not None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
