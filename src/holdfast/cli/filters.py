"""The search filters as options, the same for every command that selects jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import click

from holdfast.cli.submit import tags_of
from holdfast.model.job import Priority, State
from holdfast.operations.filters import JobFilter

F = TypeVar("F", bound=Callable[..., object])

_PRIORITY = click.option(
    "--priority",
    "priorities",
    multiple=True,
    type=click.Choice([p.name for p in Priority], case_sensitive=False),
    help="Only this priority; may be repeated.",
)

_FILTERS = (
    click.option(
        "--type", "types", multiple=True, help="Only this type, or email.*; may be repeated."
    ),
    click.option("--queue", "queues", multiple=True, help="Only this queue; may be repeated."),
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice(list(State), case_sensitive=False),
        help="Only this state; may be repeated.",
    ),
    _PRIORITY,
    click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only with this tag."),
    click.option("--correlation-id", metavar="ID", help="Only with this correlation id."),
    click.option("--id-prefix", metavar="TEXT", help="Only ids that begin so."),
    click.option(
        "--code", help="Failed with this code, or CODE*; without --state, those failed now."
    ),
    click.option("--worker", help="Of this worker; without --state, those that run."),
    click.option("--created-after", metavar="TIME", help="Submitted at or after this time."),
    click.option("--created-before", metavar="TIME", help="Submitted before this time."),
    click.option("--updated-after", metavar="TIME", help="Last changed at or after this time."),
    click.option("--group", metavar="GROUP", help="Failed as this group, see failure-groups."),
)


def filter_options(command: F) -> F:
    """Add every filter to a command."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def filter_options_without_priority(command: F) -> F:
    """Add the filters to a command whose ``--priority`` sets one."""
    for option in reversed([each for each in _FILTERS if each is not _PRIORITY]):
        command = option(command)
    return command


def selection_options(command: F) -> F:
    """Add what a command that changes many jobs needs to select them safely."""
    for option in (
        click.option(
            "--background",
            is_flag=True,
            help="Start it as an operation that a worker or the service runs, and return.",
        ),
        click.option("--dry-run", is_flag=True, help="Only count the jobs that would change."),
        click.option("--as-of", metavar="TIME", help="Skip jobs that changed after this time."),
    ):
        command = option(command)
    return command


def job_filter(given: Mapping[str, object]) -> JobFilter:
    """Return the filter that the options describe; it holds only the options that were given."""
    wanted = {name: value for name, value in given.items() if value not in (None, ())}
    if "tags" in wanted:
        wanted["tags"] = tags_of(given["tags"])  # type: ignore[arg-type]  # click made a tuple
    return wanted  # type: ignore[return-value]  # the library checks every value
