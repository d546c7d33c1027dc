"""The app that shared tasks and signatures belong to: the one made last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.contrib.celery.interface import CeleryApp

_apps: list[CeleryApp] = []
shared: list[Any] = []
"""The tasks of ``shared_task``, which every app registers."""


def current_app() -> CeleryApp:
    """Return the app made last."""
    if not _apps:
        raise HoldfastError("there is no Celery app yet: import the module that makes it first")
    return _apps[-1]


def set_current(app: CeleryApp) -> None:
    """Make an app the current one."""
    _apps[:] = [app]


def has_current() -> bool:
    """Whether an app was made."""
    return bool(_apps)
