"""The commands for code written for Celery."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from holdfast.cli.errors import USAGE, CommandError
from holdfast.contrib.celery.check import check as read_code
from holdfast.observe.logging import plain


@click.group()
def celery() -> None:
    """Check code written for Celery."""


@celery.command()
@click.argument("package")
def check(package: str) -> None:
    """List the code that does not carry over to holdfast. PACKAGE is a folder or a module.

    The code is read, not run. The exit code is 1 when something does not carry over.
    """
    found, files = read_code(_place(package))
    for finding in found:
        text = f"{finding.path}:{finding.line}: {finding.what}: {finding.instead}"
        click.echo(plain(text, 500))
    if not files:
        message = f"nothing in {package!r} imports Celery or holdfast.contrib.celery"
        raise CommandError(f"{message}: there is nothing to change", USAGE)
    count = len(found)
    users = "1 file uses" if files == 1 else f"{files} files use"
    click.echo(f"{users} Celery; {count or 'no'} finding{'s' * (count != 1)}")
    if found:
        raise SystemExit(1)


def _place(package: str) -> Path:
    inside = Path(*package.split("."))
    for path in (Path(package), inside, inside.with_suffix(".py")):
        if path.exists():
            return path
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise CommandError(f"no file, folder or module {package!r}", USAGE)
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin
