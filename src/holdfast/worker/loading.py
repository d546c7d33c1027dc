"""Loads an app by its path, ``module:attribute``."""

from __future__ import annotations

import importlib
from functools import reduce
from types import ModuleType

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError


class AppNotFoundError(HoldfastError):
    """There is no app at a path; the message gives the reason."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(path, why)

    def __str__(self) -> str:
        return f"no app at {self.path!r}: {self.why}"


def load_app(path: str) -> Holdfast:
    """Return the app at a path, or AppNotFoundError.

    ``module`` alone means its ``app``, or the only app in it. Exceptions of the module itself
    propagate unchanged.
    """
    found = load_object(path) if ":" in path else _only_app(path)
    if not isinstance(found, Holdfast):
        raise AppNotFoundError(path, f"it is a {type(found).__name__}, not a Holdfast")
    return found


def _only_app(module_name: str) -> object:
    module = _module(module_name, module_name)
    if hasattr(module, "app"):
        return module.app
    apps = [name for name, value in vars(module).items() if isinstance(value, Holdfast)]
    if len(apps) > 1:
        choice = " or ".join(f"{module_name}:{name}" for name in apps)
        raise AppNotFoundError(module_name, f"it holds several apps, name {choice}")
    if not apps:
        raise AppNotFoundError(module_name, "the module holds no Holdfast app")
    return getattr(module, apps[0])


def load_object(path: str) -> object:
    """Import a module and return one of its attributes, ``module:name``."""
    module_name, _, name = path.partition(":")
    module = _module(module_name, path)
    try:
        found: object = reduce(getattr, name.split("."), module)
    except AttributeError:
        raise AppNotFoundError(path, f"module {module_name!r} has no {name!r}") from None
    return found


def _module(name: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ValueError, TypeError):
        raise AppNotFoundError(path, "it must look like module:name") from None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise AppNotFoundError(path, f"there is no module {error.name!r}") from None
