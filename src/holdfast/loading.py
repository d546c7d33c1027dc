"""Finding an app by its path, ``module:attribute``, in this or a fresh process."""

from __future__ import annotations

import importlib
from functools import reduce

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError


class AppNotFoundError(HoldfastError):
    """A path does not lead to an app; the message says where it ends."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(path, why)

    def __str__(self) -> str:
        return f"no app at {self.path!r}: {self.why}"


def load_app(path: str) -> Holdfast:
    """Return the app at a path (``module`` alone means its ``app``), or AppNotFoundError.

    What the module itself raises while it is imported goes through as it is.
    """
    found = load_object(path if ":" in path else f"{path}:app")
    if not isinstance(found, Holdfast):
        raise AppNotFoundError(path, f"it is a {type(found).__name__}, not a Holdfast")
    return found


def load_object(path: str) -> object:
    """Import a module and return what it holds under a name, ``module:name``."""
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ValueError:
        raise AppNotFoundError(path, "it must look like module:name") from None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise AppNotFoundError(path, f"there is no module {error.name!r}") from None
    try:
        found: object = reduce(getattr, name.split("."), module)
    except AttributeError:
        raise AppNotFoundError(path, f"module {module_name!r} has no {name!r}") from None
    return found
