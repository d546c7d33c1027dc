"""Loads an app by its path, ``module:attribute``."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.runtime.importing import importing


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
    found = getattr(found, "holdfast", found)  # an app of another framework has one inside
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
    if not apps and _has_celery(module):  # where `celery -A` looks, too
        return _only_app(f"{module_name}.celery")
    if not apps:
        raise AppNotFoundError(module_name, "the module holds no Holdfast app")
    return getattr(module, apps[0])


def _has_celery(module: ModuleType) -> bool:
    """Whether a module is a package with a module ``celery`` of its own."""
    return hasattr(module, "__path__") and find_spec(f"{module.__name__}.celery") is not None


def load_object(path: str) -> object:
    """Import a module and return one of its attributes, ``module:name``."""
    module_name, _, name = path.partition(":")
    module = _module(module_name, path)
    try:
        found: object = reduce(getattr, name.split("."), module)
    except AttributeError:
        like = get_close_matches(name, vars(module), n=1)
        hint = f"; did you mean {module_name}:{like[0]}?" if like else ""
        raise AppNotFoundError(path, f"module {module_name!r} has no {name!r}{hint}") from None
    return found


def _module(name: str, path: str) -> ModuleType:
    try:
        with importing(f"module {name!r}"):
            return importlib.import_module(name)
    except (ValueError, TypeError):
        raise AppNotFoundError(path, f"it must look like module:name{_hint(name)}") from None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        why = f"there is no module {error.name!r} in {Path.cwd()} or on the Python path"
        raise AppNotFoundError(path, f"{why}{_hint(name)}") from None


def _hint(name: str) -> str:
    """Return what a path that is no module was probably meant to be."""
    if name.endswith(".py"):
        module = name.removeprefix("./").removesuffix(".py").replace("/", ".").strip(".")
        return f": name the module, not the file: {module}:app"
    module, _, attribute = name.rpartition(".")
    if module and _exists(module):
        return f": write {module}:{attribute} for {attribute!r} of module {module!r}"
    here = get_close_matches(
        name, [file.stem for file in Path.cwd().glob("*.py")], n=1, cutoff=0.75
    )
    if here:
        return f": did you mean {here[0]}?"
    return ": run the command in the directory of your module"


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
