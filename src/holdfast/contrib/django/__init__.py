"""holdfast in a Django project: settings, tasks, commands, admin, and a backend for its tasks.

Names are imported when they are first used: Django imports this package before it is set up.
"""

from __future__ import annotations

import importlib
import importlib.util
import typing

from holdfast.errors import MissingExtraError

if typing.TYPE_CHECKING:
    from holdfast.contrib.django.backend import HoldfastBackend
    from holdfast.contrib.django.configured import app

if importlib.util.find_spec("django") is None:
    raise MissingExtraError("django", "django")

_MODULES = {"HoldfastBackend": "backend", "app": "configured"}
_EXTRA = ("django", "django_tasks")

__all__ = ["HoldfastBackend", "app"]

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _EXTRA:
                raise
            raise MissingExtraError("django", error.name) from None
        return getattr(module, name)
