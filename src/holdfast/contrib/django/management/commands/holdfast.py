"""``manage.py holdfast``: the whole command line, with the app and the store of the project."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand

from holdfast.contrib.command_line import PROGRAM, run_command
from holdfast.contrib.django.configured import app


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
    """Run a command; name the app and the store to it and to processes that it starts."""
    named = {"HOLDFAST_APP": app.import_path, "HOLDFAST_URL": app.url}
    if os.environ.get("HOLDFAST_URL") != app.url:
        named["HOLDFAST_URL_SOURCE"] = "Django's settings HOLDFAST and DATABASES"
    return run_command(arguments, named, prog)
