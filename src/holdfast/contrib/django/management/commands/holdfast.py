"""``manage.py holdfast``: the whole command line, with the app and the store of the project."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, cast

from django.core.management.base import BaseCommand

from holdfast.contrib.django.configured import app

PROGRAM = "holdfast"


class Command(BaseCommand):
    """Runs a command of holdfast: worker, serve, jobs, retry, doctor and all others."""

    help = "Run a command of holdfast with the settings of this project: see holdfast --help"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything on, so that options mean what they mean to holdfast."""
        sys.exit(_run(argv[2:], prog=f"{argv[0]} {argv[1]}"))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take any arguments."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *_: object, arguments: list[str], **__: Any) -> None:
        """Run a command for ``call_command``; SystemExit if it fails."""
        if code := _run(arguments):
            sys.exit(code)


def _run(arguments: list[str], prog: str = PROGRAM) -> int:
    """Run the program that is installed as ``holdfast`` in this process; return its exit code."""
    (script,) = entry_points(group="console_scripts", name=PROGRAM)
    main = cast("Callable[[], object]", script.load())
    before, sys.argv = sys.argv, [prog, *arguments]
    environment = dict(os.environ)
    os.environ.update(_environment())
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(environment)
    return 0


def _environment() -> dict[str, str]:
    """Return what names the app and the store to the command and to processes that it starts."""
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = dict.fromkeys(filter(None, [sys.path[0], *others]))
    return {
        "HOLDFAST_APP": app.import_path,
        "HOLDFAST_URL": app.url,
        "PYTHONPATH": os.pathsep.join(folders),
    }
