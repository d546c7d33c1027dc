"""How commands end: exit codes, and errors told in a few lines instead of a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

OK = 0
FAILED = 1
"""Not found, refused, or a job that was waited for failed."""
USAGE = 2
"""Wrong arguments or settings, or no app where one was named."""
UNREACHABLE = 3
"""The store cannot be reached or opened."""
TIMED_OUT = 4
INTERRUPTED = 130


class CommandError(click.ClickException):
    """A message for stderr and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click itself sets it per instance

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"holdfast: {self.message}", file=file, err=file is None)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn what holdfast raises into a problem with the fitting exit code."""
    from holdfast.errors import HoldfastError

    try:
        yield
    except HoldfastError as error:
        raise problem_of(error) from None
    except TimeoutError:
        raise CommandError("timed out", TIMED_OUT) from None
    except BrokenPipeError:
        hush()
        raise click.exceptions.Exit(OK) from None


def hush() -> None:
    """The reader has seen enough: let nothing complain while the interpreter shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def problem_of(error: Exception) -> CommandError:
    """Say what is wrong and how the command should exit."""
    from holdfast.errors import StoreError, ValidationError
    from holdfast.observe.logging import plain
    from holdfast.observe.redaction import redacted
    from holdfast.worker.loading import AppNotFoundError

    match error:
        case ValidationError():
            lines = [f"\n  {plain(f.field)}: {plain(redacted(f.message))}" for f in error.faults]
            return CommandError("this is not valid:" + "".join(lines), USAGE)
        case AppNotFoundError():
            return CommandError(plain(redacted(error)), USAGE)
        case StoreError():
            return CommandError(plain(redacted(error)), UNREACHABLE)
        case _:
            return CommandError(plain(redacted(error)), FAILED)
