"""The methods of an app that join its own code to every job: middleware and resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from holdfast.tasks.depends import AppType
from holdfast.tasks.registry import Registry

M = TypeVar("M")
F = TypeVar("F", bound=Callable[..., object])


class AppSeams(AppType):
    """The middleware and resources of an app."""

    registry: Registry

    def middleware(self, middleware: M) -> M:
        """Add middleware around every submission and every attempt, inside of those before it.

        It is an object with ``submitting(submission)``, ``attempt(call)`` or both; see
        ``Middleware``. Register it where the tasks are registered, so that child processes
        have it, too.
        """
        self.registry.seams.middleware.add(middleware)
        return middleware

    def lifespan(self, function: F) -> F:
        """Enter a resource in every worker process before its first job; leave it after its last.

        The function is an async generator that yields once, or returns an async context
        manager; it may take the app. Child processes enter it as well. Several are entered in
        order and left in reverse. An exception before the yield keeps the worker from starting.
        """
        self.registry.seams.resources.add(function)
        return function

    @contextmanager
    def override(
        self, function: Callable[..., object], replacement: Callable[..., object]
    ) -> Iterator[None]:
        """Use another function wherever handlers depend on ``function``, for the time of a block.

        For tests: a lifespan function that is replaced is not entered. It applies in this
        process, so not in child processes that have started.
        """
        overrides = self.registry.seams.overrides
        before = overrides.get(function)
        overrides[function] = replacement
        try:
            yield
        finally:
            del overrides[function]
            if before is not None:
                overrides[function] = before
