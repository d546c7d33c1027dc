"""Runs the program that is installed as ``holdfast`` inside a framework's own command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import cast

PROGRAM = "holdfast"


def run_command(arguments: Sequence[str], environment: Mapping[str, str], prog: str) -> int:
    """Run a command in this process with further variables; return its exit code.

    Processes that it starts, such as workers, find the modules that this one finds.
    """
    (script,) = entry_points(group="console_scripts", name=PROGRAM)
    main = cast("Callable[[], object]", script.load())
    before, sys.argv = sys.argv, [prog, *arguments]
    variables = dict(os.environ)
    os.environ.update({**environment, "PYTHONPATH": _python_path()})
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(variables)
    return 0


def _python_path() -> str:
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [sys.path[0], *others])))
