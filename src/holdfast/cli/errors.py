"""How commands end: exit codes, and errors as a few lines instead of a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

OK = 0
FAILED = 1
"""Not found, refused, or the job that --wait waited for did not complete."""
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
def reported() -> Iterator[None]:
    """Turn an error of holdfast into a message with its exit code."""
    from holdfast.errors import HoldfastError

    try:
        yield
    except HoldfastError as error:
        raise command_error(error) from None
    except TimeoutError:
        raise CommandError("timed out", TIMED_OUT) from None
    except BrokenPipeError:
        discard_output()
        raise click.exceptions.Exit(OK) from None


def discard_output() -> None:
    """Discard further output: the reader of the pipe is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command_error(error: Exception) -> CommandError:
    """Return the message and the exit code for an error."""
    from holdfast.errors import StoreError, ValidationError
    from holdfast.observe.logging import plain
    from holdfast.observe.redaction import redacted
    from holdfast.runtime.importing import UnguardedScriptError
    from holdfast.worker.loading import AppNotFoundError

    match error:
        case ValidationError():
            lines = [f"\n  {plain(f.field)}: {plain(redacted(f.message))}" for f in error.faults]
            return CommandError("not valid:" + "".join(lines), USAGE)
        case AppNotFoundError() | UnguardedScriptError():
            return CommandError(plain(redacted(error)), USAGE)
        case StoreError():
            return CommandError(plain(redacted(error)), UNREACHABLE)
        case _:
            return CommandError(plain(redacted(error)), FAILED)
