"""Notices that a program starts its work while holdfast only imports it.

A worker, a child process and a command import a user's module to find its tasks. A script
that submits jobs or runs a worker when it is imported would do so again in each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError


class UnguardedScriptError(HoldfastError):
    """A module uses its app while it is imported; the message gives the line to add."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(
            f"{module} uses its app while holdfast imports it, and would do so again in every"
            " process: put that part of it under 'if __name__ == \"__main__\":'"
        )


class _Imports(threading.local):
    module: str | None = None


_imports = _Imports()


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Import a user's module inside this block: it must not use its app meanwhile."""
    before, _imports.module = _imports.module, module
    try:
        yield
    finally:
        _imports.module = before


def check_not_importing() -> None:
    """Raise UnguardedScriptError when this thread imports a user's module."""
    if _imports.module is not None:
        raise UnguardedScriptError(_imports.module)
