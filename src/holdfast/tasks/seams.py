"""Where an app's own code joins: its middleware and its resources."""

from __future__ import annotations

from holdfast.tasks.middleware import MiddlewareChain
from holdfast.tasks.resources import Resources


class Seams:
    """The middleware and resources of an app, shared by all of its handlers."""

    def __init__(self) -> None:
        self.middleware = MiddlewareChain()
        self.resources = Resources()
        self.attempts = self.middleware.attempts
        """The middleware around attempts; empty for most apps."""
