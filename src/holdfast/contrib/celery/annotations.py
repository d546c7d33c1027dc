"""Arguments of a task as its annotations say: JSON carries a datetime or a Decimal as text."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

_KEPT = 1000
"""Functions whose annotations are kept."""


def as_annotated(
    body: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, each converted to the annotation of its parameter if it fits.

    A value that does not fit stays as it is: Celery checks no types.
    """
    named, hints = _parameters(inspect.unwrap(getattr(body, "__func__", body)))
    if inspect.ismethod(body):
        named = named[1:]
    positional = [*named, *([named[-1]] * len(args) if named else [])]
    converted = tuple(
        _converted(value, hints.get(name)) for name, value in zip(positional, args, strict=False)
    )
    return (
        (*converted, *args[len(converted) :]),
        {name: _converted(value, hints.get(name)) for name, value in kwargs.items()},
    )


@lru_cache(maxsize=_KEPT)
def _parameters(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the parameters that take positional arguments, and all annotations."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  # whatever an annotation raises; then there are none
        return [], {}
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.kind in kinds], hints


def _converted(value: Any, annotation: Any) -> Any:
    if annotation is None or annotation is Any:
        return value
    try:
        return msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError, ValueError):
        return value
