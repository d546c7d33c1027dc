"""Dependencies of handlers: parameters whose values the app provides, not the payload.

A dependency is a function or generator, sync or async, or a lifespan function. It is called once
per attempt, where the handler runs; a generator is closed after the attempt.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from holdfast.tasks.context import JobContext, SyncJobContext

CONTEXTS = (JobContext, SyncJobContext)


class SignatureError(ValueError):
    """The signature of a function that cannot be a task."""


class AppType:
    """What an app is to the functions that take it as a parameter."""


class Dependency:
    """The mark of a parameter that ``function`` provides."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({name_of(self.function)})"


def Depends(function: Callable[..., object]) -> Any:  # noqa: N802  # it stands where a type stands
    """Mark a parameter that a function provides: ``db: Pool = Depends(pool)``.

    Also as ``Annotated[Pool, Depends(pool)]``. The function may be a lifespan function, whose
    yielded value it is, or any function, coroutine function or generator; it may have
    dependencies of its own, and take the job's context and the app.
    """
    if not callable(function):
        raise TypeError(f"Depends needs a function, got {function!r:.80}")
    return Dependency(function)


class Needs(typing.NamedTuple):
    """What a dependency function is called with."""

    dependencies: Mapping[str, Dependency]
    contexts: tuple[str, ...]
    apps: tuple[str, ...]


@lru_cache(maxsize=1024)
def needs_of(function: Callable[..., object]) -> Needs:
    """Return what a dependency is called with; SignatureError when a parameter has no value."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin, called without arguments
        return Needs({}, (), ())
    hints = hints_of(function.__init__ if inspect.isclass(function) else function)
    found = dependencies_of(parameters, hints)
    contexts, apps = list[str](), list[str]()
    for name, parameter in parameters.items():
        if name in found or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if hints.get(name) in CONTEXTS:
            contexts.append(name)
        elif _is_app(name, hints.get(name)):
            apps.append(name)
        elif parameter.default is parameter.empty:
            message = f"dependency {name_of(function)}: parameter {name!r} must be a Depends(),"
            raise SignatureError(f"{message} a JobContext, the app, or have a default")
    return Needs(found, tuple(contexts), tuple(apps))


def dependencies_of(
    parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> dict[str, Dependency]:
    """Return the parameters that are dependencies, by their default or annotation."""
    found: dict[str, Dependency] = {}
    for name, parameter in parameters.items():
        marks = [parameter.default, *getattr(hints.get(name), "__metadata__", ())]
        if mark := next((mark for mark in marks if isinstance(mark, Dependency)), None):
            found[name] = mark
    return found


def check_dependencies(found: Mapping[str, Dependency]) -> None:
    """Raise SignatureError for dependencies that cannot be called, or that need themselves."""

    def check(dependency: Dependency, above: tuple[object, ...]) -> None:
        if dependency.function in above:
            raise SignatureError(f"dependency {name_of(dependency.function)} needs itself")
        for one in needs_of(dependency.function).dependencies.values():
            check(one, (*above, dependency.function))

    for dependency in found.values():
        check(dependency, ())


def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """Resolve the annotations of the parameters; the return type is not needed."""
    plain = inspect.unwrap(function)
    if not hasattr(plain, "__annotations__"):
        plain = getattr(type(plain), "__call__", plain)  # noqa: B004  # an object may be a task
    given = SimpleNamespace(__annotations__=dict(getattr(plain, "__annotations__", {})))
    given.__annotations__.pop("return", None)
    names = getattr(plain, "__globals__", {})
    try:
        return typing.get_type_hints(given, globalns=names, include_extras=True)
    except NameError as error:
        message = f"cannot resolve its annotations: {error}; import it where the program runs"
        raise SignatureError(f"{message}, not only for type checking") from None
    except TypeError as error:
        raise SignatureError(f"cannot resolve its annotations: {error}") from None


def name_of(function: object) -> str:
    """Return the name of a function for messages."""
    module = getattr(function, "__module__", type(function).__module__)
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _is_app(name: str, hint: object) -> bool:
    return name == "app" or (isinstance(hint, type) and issubclass(hint, AppType))
