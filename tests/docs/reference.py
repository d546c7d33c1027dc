"""Writes the pages of the reference from the code itself: ``python -m tests.docs.reference``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from holdfast.cli import cli
from holdfast.cli.commands import SECTIONS
from holdfast.cli.spans import SPAN
from tests.architecture import tree
from tests.docs import http_page, metrics_page, settings_page

PAGE = tree.ROOT / "docs" / "reference-cli.md"
PREFACE = """# Command line

`holdfast COMMAND`, or `python -m holdfast COMMAND`. `python -m tests.docs.reference` generates this
page from the commands.

**The store** is `--url`, else `$HOLDFAST_URL`, else `url` in `holdfast.toml`, else
`sqlite:///holdfast.db`. Commands that only read or change existing data neither create a SQLite
file or a PostgreSQL schema nor migrate a schema: see `migrate`.

**Output** is a table for people. With `--json` a command prints one JSON document on one line
instead, with stable field names (`events` prints one document per event). Times are ISO 8601 in
UTC, durations ISO 8601. Errors and logs go to stderr.

**States**: SCHEDULED means *ready to run*, DELAYED means *waits for its time*. The
[tutorial](tutorial.md#the-life-of-a-job) explains all of them.

**SPAN** is a duration: `30` (seconds), `30s`, `5m`, `1h`, `7d`, or ISO 8601 such as
`PT5M`. **TIME** is ISO 8601 with a time zone, such as `2026-01-15T10:30:00Z`.

| exit code | meaning |
| --: | --- |
| 0 | done |
| 1 | not found, refused, or the job that the command waited for failed |
| 2 | wrong usage: arguments, settings, or no app under the given name |
| 3 | the store cannot be reached or opened |
| 4 | timed out |
| 130 | interrupted |

**Shell completion**: put one of these lines into the shell's start-up file.

    eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)"      # ~/.bashrc
    eval "$(_HOLDFAST_COMPLETE=zsh_source holdfast)"       # ~/.zshrc
    _HOLDFAST_COMPLETE=fish_source holdfast | source       # ~/.config/fish/config.fish
"""


def render() -> str:
    """Return the page."""
    ctx = click.Context(cli, info_name="holdfast")
    parts = [PREFACE]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            command = cli.get_command(ctx, name)
            assert command is not None
            parts += _described(command, f"holdfast {name}")
    return "\n".join(parts)


def _described(command: click.Command, path: str) -> Iterator[str]:
    usage = " ".join([path, *command.collect_usage_pieces(click.Context(command))])
    yield f"### {path}\n\n    {usage}\n\n{inspect.cleandoc(command.help or '')}\n"
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        yield "| option | meaning |\n| --- | --- |"
        yield "\n".join(map(_row, options)) + "\n"
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _described(inner, f"{path} {name}")


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    metavar = option.metavar or ("SPAN" if option.type is SPAN else "")
    value = f" {metavar}" if metavar else ""
    told = re.sub(r"  \[(.*)\]$", r" Default: \1.", option.help or "")
    if isinstance(option.type, click.Choice):
        told += f" One of {', '.join(str(choice) for choice in option.type.choices)}."
    return f"| {names}{value} | {told.strip()} |"


PAGES: dict[Path, Callable[[], str]] = {
    PAGE: render,
    http_page.PAGE: http_page.render,
    metrics_page.PAGE: metrics_page.render,
    settings_page.PAGE: settings_page.render,
}


if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), "utf-8")
