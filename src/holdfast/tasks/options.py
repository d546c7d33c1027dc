"""The options of a task as a user writes them, read into the options of its registration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import Priority
from holdfast.model.policy import Backoff, CustomDelay, declared_backoff
from holdfast.model.times import Span, parse_duration
from holdfast.store import LimitRule
from holdfast.tasks.registry import HandlerOptions, RunnerKind
from holdfast.tasks.upgrades import OnMismatch, Upgrade

T = TypeVar("T")

MAIN = "__main__"
MAIN_COPY = "__holdfast_main__"
"""The name under which a child process imports the started script."""


class TaskOptions(TypedDict, total=False):
    """The options of a task: defaults of its jobs, and where they run."""

    queue: str | None
    priority: Priority | str | None
    timeout: Span | None
    lifetime: Span | None
    lease: Span | None
    max_attempts: int | None
    backoff: Backoff | CustomDelay | None
    retry_timeouts: bool
    retry_crashes: bool
    runner: RunnerKind | str | None
    concurrency: int | None
    limit: LimitRule | None
    key_limit: LimitRule | None
    permanent: Sequence[type[BaseException]]
    temporary: Sequence[type[BaseException]]
    memory_limit: int | None
    aliases: Sequence[str]
    version: int
    upgrades: Mapping[int, Upgrade]
    on_mismatch: OnMismatch | str


def handler_options(**given: Unpack[TaskOptions]) -> HandlerOptions:
    """Read options; TypeError for an unknown one, ValidationError names every wrong value."""
    if unknown := given.keys() - TaskOptions.__annotations__.keys():
        raise TypeError(f"a task has no option {', '.join(sorted(unknown))}")
    read: dict[str, Any] = dict(given)
    faults: list[Fault] = []
    for name, reader in _READERS.items():
        if read.get(name) is not None:
            try:
                read[name] = reader(read[name])
            except (ValueError, TypeError) as error:
                faults.append(Fault(name, "INVALID", str(error)))
    if faults:
        raise ValidationError(faults)
    if "backoff" in read and not isinstance(read["backoff"], Backoff):
        read["custom_backoff"] = read["backoff"]
        read["backoff"] = declared_backoff(read["backoff"])
    return HandlerOptions(**read)


def given_options(options: HandlerOptions) -> dict[str, object]:
    """Return the options that differ from the defaults."""
    fields = zip(HandlerOptions.__struct_fields__, HandlerOptions.__struct_defaults__, strict=True)
    return {
        name: value for name, default in fields if (value := getattr(options, name)) is not default
    }


def natural_type(function: Callable[..., object]) -> str:
    """Return the job type of a function that has none: the name of its module and its own."""
    name = getattr(function, "__name__", type(function).__name__)
    module = str(getattr(function, "__module__", ""))
    if module in (MAIN, MAIN_COPY):
        module = _script(getattr(function, "__globals__", {})) or module
    return f"{module}.{name}"


def _script(space: Mapping[str, Any]) -> str:
    """The name under which a worker imports the started script."""
    spec = space.get("__spec__")
    return spec.name if spec is not None else Path(space.get("__file__") or "").stem


def _priority(value: Priority | str) -> Priority:
    if isinstance(value, Priority):
        return value
    if value not in Priority.__members__:
        raise ValueError(f"must be one of {', '.join(Priority.__members__)}, got {value!r:.60}")
    return Priority[value]


def _runner(value: str) -> RunnerKind:
    if value not in tuple(RunnerKind):
        raise ValueError(f"must be one of {', '.join(RunnerKind)}, got {value!r:.60}")
    return RunnerKind(value)


def _backoff(value: T) -> T:
    if not isinstance(value, Backoff) and not callable(value):
        raise ValueError(f"must be a Backoff or a function, got {value!r:.60}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be True or False, got {value!r:.60}")  # one kind of fault
    return value


def _on_mismatch(value: str) -> OnMismatch:
    if value not in tuple(OnMismatch):
        raise ValueError(f"must be one of {', '.join(OnMismatch)}, got {value!r:.60}")
    return OnMismatch(value)


def _names(value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ValueError(f"must be a list of types, got {value!r:.60}")  # one kind of fault
    return tuple(value)


_READERS: dict[str, Callable[[Any], object]] = {
    "priority": _priority,
    "timeout": parse_duration,
    "lifetime": parse_duration,
    "lease": parse_duration,
    "backoff": _backoff,
    "retry_timeouts": _flag,
    "retry_crashes": _flag,
    "runner": _runner,
    "aliases": _names,
    "upgrades": dict,
    "on_mismatch": _on_mismatch,
    "permanent": tuple,
    "temporary": tuple,
}

__all__ = ["MAIN", "MAIN_COPY", "TaskOptions", "given_options", "handler_options", "natural_type"]
