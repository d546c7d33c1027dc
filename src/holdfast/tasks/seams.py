"""Where an app's own code joins: its middleware, its resources and their replacements in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.tasks.middleware import MiddlewareChain
from holdfast.tasks.resources import Resources


class Seams:
    """The middleware and resources of an app, shared by all of its handlers."""

    def __init__(self) -> None:
        self.app: object = None
        """The app itself, for the functions that take it."""
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """The functions that replace others."""
        self.middleware = MiddlewareChain()
        self.resources = Resources(self.overrides)
        self.attempts = self.middleware.attempts
        """The middleware around attempts; empty for most apps."""
