"""Runs the program that is installed as ``holdfast`` inside a framework's own command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

PROGRAM = "holdfast"


def run_command(arguments: Sequence[str], environment: Mapping[str, str], prog: str) -> int:
    """Run a command in this process with further variables; return its exit code.

    Processes that it starts, such as workers, find the modules that this one finds.
    """
    (script,) = entry_points(group="console_scripts", name=PROGRAM)
    run = cast("Callable[[], int]", import_module(script.module).run)
    before, sys.argv = sys.argv, [prog, *arguments]
    variables = dict(os.environ)
    os.environ.update({**environment, "PYTHONPATH": _python_path()})
    try:
        return run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(variables)


def _python_path() -> str:
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [sys.path[0], *others])))
