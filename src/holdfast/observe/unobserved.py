"""Reports what background tasks and callbacks of an event loop raise and nobody awaits."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Generator, Mapping
from typing import Any

from holdfast.observe.observer import Observer, Silent


@contextlib.contextmanager
def unobserved_reported(observer: Observer) -> Generator[None, None, None]:
    """Pass unobserved errors of the running loop to an observer, until the block ends.

    A handler that the program has set stays. Without an observer asyncio logs them as always.
    """
    loop = asyncio.get_running_loop()
    if isinstance(observer, Silent) or loop.get_exception_handler() is not None:
        yield
        return
    loop.set_exception_handler(lambda _, context: _report(observer, context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)


def _report(observer: Observer, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    fields = {"message": context["message"]}
    task = context.get("task") or context.get("future")
    if isinstance(task, asyncio.Task):
        fields["task"] = task.get_name()
    if isinstance(error, BaseException):
        fields["error"] = f"{type(error).__name__}: {error}"
        fields["stack_trace"] = "".join(traceback.format_exception(error))
    observer.emit("loop.error", **fields)
