"""How a new process finds the handlers that this one registered.

The app must be an attribute of a module (or of the script that was started, whose work then
belongs under ``if __name__ == "__main__"``), and each task must be registered while its module
or the app's is imported. Then any function works: nested, wrapped, made in a loop.
"""

from __future__ import annotations

import importlib
import runpy
import sys
import types
from typing import Any

from holdfast.app import Holdfast
from holdfast.model.job import Job
from holdfast.observe import logging
from holdfast.runtime.importing import importing
from holdfast.tasks.options import MAIN, MAIN_COPY
from holdfast.tasks.registry import Handler, RunnerKind
from holdfast.worker.runners.protocol import Setup


def setup_for(app: Holdfast) -> Setup:
    """Return where a new process finds the handlers of an app."""
    modules = {
        str(getattr(handler.function, "__module__", ""))
        for handler in (*app.registry, *app.registry.catch_alls.values())
        if handler.runner is RunnerKind.PROCESS
    }
    path = _path_of(app)
    modules.add(path.partition(":")[0])
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    if MAIN in modules and spec is not None:
        modules.add(spec.name)
        path = path.replace(f"{MAIN}:", f"{spec.name}:")
        modules.discard(MAIN)
    script = str(getattr(main, "__file__", "")) if MAIN in modules else ""
    return Setup(
        app=path, main=script, modules=sorted(modules - {MAIN, ""}), log=list(logging.configured)
    )


def _path_of(app: Holdfast) -> str:
    """The module and name under which the app can be imported; the main module comes last."""
    if app.import_path is not None:
        return app.import_path
    found = [
        f"{name}:{attribute}"
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType)  # pyright: ignore[reportUnnecessaryIsInstance]  # anything may be put there
        for attribute, value in list(vars(module).items())
        if value is app
    ]
    found.sort(key=lambda path: path.startswith(f"{MAIN}:"))
    return found[0] if found else ""


class Handlers:
    """The handlers that this process found."""

    def __init__(self, setup: Setup) -> None:
        module, _, attribute = setup.app.partition(":")
        first = [module] if module in setup.modules else []  # it may set up what others need
        spaces = [_imported(name) for name in dict.fromkeys([*first, *setup.modules])]
        if setup.main:
            spaces.append(_run_main(setup.main))
        self._apps: list[Holdfast] = []
        for space in spaces:
            found = [value for value in space.values() if isinstance(value, Holdfast)]
            if space.get("__name__") in (module, MAIN_COPY) and attribute in space:
                self._apps.insert(0, space[attribute])
            self._apps.extend(found)

    @property
    def apps(self) -> list[Holdfast]:
        """The apps that hold the handlers, each once."""
        return list({id(app): app for app in self._apps}.values())

    def get(self, job: Job) -> Handler | None:
        """Return the handler of a job: the app's own, else that of any other app."""
        return next((h for app in self._apps if (h := app.registry.for_job(job)) is not None), None)


def _imported(name: str) -> dict[str, Any]:
    with importing(f"module {name!r}"):
        return vars(importlib.import_module(name))


def _run_main(path: str) -> dict[str, object]:
    """Run the started script under another name, so that its main part does not run."""
    module = types.ModuleType(MAIN_COPY)
    with importing(path):
        space = runpy.run_path(path, run_name=MAIN_COPY)
    vars(module).update(space)
    sys.modules[MAIN_COPY] = module
    return vars(module)
