"""Commands about operations on many jobs: list, start, show, cancel."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypedDict, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import FAILED, USAGE, CommandError
from holdfast.cli.filters import filter_options_without_priority, job_filter
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import facts, mapping, moment, table
from holdfast.model.bulk import BulkAction, BulkOperation, BulkState
from holdfast.model.job import Priority
from holdfast.observe.logging import plain
from holdfast.operations.filters import JobFilter

T = TypeVar("T")
LOOK_EVERY = 0.5
"""Seconds between two looks at an operation that is watched."""


class JobSelection(TypedDict):
    """Which jobs a command changes."""

    job_ids: Sequence[str] | None
    filter: JobFilter | None
    as_of: str | None
    dry_run: bool


def job_selection(
    job_ids: tuple[str, ...], given: Mapping[str, object], as_of: str | None, dry_run: bool
) -> JobSelection:
    """Return the jobs that arguments and options select."""
    wanted = job_filter(given)
    if bool(job_ids) == bool(wanted):
        both = "not both" if wanted else "to say which jobs"
        raise CommandError(f"give job ids, or filters such as --type, {both}", USAGE)
    return {
        "job_ids": list(job_ids) or None,
        "filter": wanted or None,
        "as_of": as_of,
        "dry_run": dry_run,
    }


def start_operation(
    url: str | None,
    as_json: bool,
    action: str,
    selection: JobSelection,
    options: Mapping[str, object],
) -> None:
    """Start an operation and print it."""
    made = on_store(
        url,
        lambda app: app.bulk.start(
            action,
            filter=selection["filter"],
            ids=selection["job_ids"],
            as_of=selection["as_of"],
            dry_run=selection["dry_run"],
            by=_user(),
            **{name: value for name, value in options.items() if value},  # type: ignore[arg-type]  # checked by the operation
        ),
    )
    answer(made, as_json=as_json, show=lambda: _show_one(made))


@click.group(invoke_without_command=True)
@click.option("--limit", type=int, default=20, help="At most this many, up to 200.  [20]")
@store_options
@click.pass_context
def operations(ctx: click.Context, limit: int, url: str | None, as_json: bool) -> None:
    """List operations on many jobs, the newest first; start, show or cancel one."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = on_store(url, lambda app: app.bulk.list(limit=limit))
    answer(found, as_json=as_json, show=lambda: _show_all(found))


@operations.command()
@click.argument("action", type=click.Choice([each.value for each in BulkAction]))
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("--reason", default="", help="Of cancel: the reason, for the history of the jobs.")
@click.option("--force", is_flag=True, help="Of cancel: interrupt running jobs.")
@click.option("--reset-attempts", is_flag=True, help="Of retry: reset the attempt counter.")
@click.option("--delay", type=SPAN, default="0", help="Of retry: wait this long.")
@click.option(
    "--set-priority",
    "priority",
    type=click.Choice([p.name for p in Priority], case_sensitive=False),
    help="Of retry and reprioritise: the new priority.",
)
@click.option("--dry-run", is_flag=True, help="Only count the jobs that would change.")
@click.option("--as-of", metavar="TIME", help="Leave out jobs that match or change later.  [now]")
@filter_options_without_priority
@store_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    action: str,
    job_ids: tuple[str, ...],
    delay: timedelta,
    dry_run: bool,
    as_of: str | None,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Cancel, retry, delete, reprioritise or release jobs, by id or by filter.

    A worker or the service runs it; `show --watch` follows it.
    """
    names = ("reason", "force", "reset_attempts", "priority")
    options = {name: given.pop(name) for name in names}
    selection = job_selection(job_ids, given, as_of, dry_run)
    options["delay"] = delay
    start_operation(url or ctx.obj, as_json, action, selection, options)


@operations.command()
@click.argument("operation_id", metavar="ID")
@click.option("--watch", is_flag=True, help="Follow it until it has ended.")
@store_options
@click.pass_context
def show(
    ctx: click.Context, operation_id: str, watch: bool, url: str | None, as_json: bool
) -> None:
    """Show an operation with its progress."""

    async def followed(app: Holdfast) -> BulkOperation:
        found = await app.bulk.get(operation_id)
        while watch and not found.ended:
            click.echo(_progress(found), err=True)
            await asyncio.sleep(LOOK_EVERY)
            found = await app.bulk.get(operation_id)
        return found

    found = _on(ctx, url, followed)
    answer(found, as_json=as_json, show=lambda: _show_one(found))
    if found.state is BulkState.FAILED:
        raise click.exceptions.Exit(FAILED)


@operations.command()
@click.argument("operation_id", metavar="ID")
@store_options
@click.pass_context
def cancel(ctx: click.Context, operation_id: str, url: str | None, as_json: bool) -> None:
    """Stop an operation; what it has changed stays."""
    found = _on(ctx, url, lambda app: app.bulk.cancel(operation_id))
    answer(found, as_json=as_json, show=lambda: _show_one(found))


def _on(ctx: click.Context, url: str | None, operate: Callable[[Holdfast], Awaitable[T]]) -> T:
    return on_store(url or ctx.obj, operate)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry for the user of a container
        return ""


def _progress(one: BulkOperation) -> str:
    matched = f"{one.matched}{'' if one.matched_exact else '+'}"
    return f"{one.state}: {one.examined} of {matched}"


def _show_all(found: Sequence[BulkOperation]) -> None:
    table(
        ("ID", "ACTION", "STATE", "MATCHED", "DONE", "SKIPPED", "FAILED", "BY", "CREATED"),
        [
            (
                one.id,
                f"{one.action}{' (dry run)' if one.dry_run else ''}",
                one.state,
                f"{one.matched}{'' if one.matched_exact else '+'}",
                one.done,
                one.skipped,
                one.failed,
                one.by,
                moment(one.created_at),
            )
            for one in found
        ],
    )


def _show_one(one: BulkOperation) -> None:
    facts(
        [
            ("id", one.id),
            ("action", f"{one.action}{' (dry run)' if one.dry_run else ''}"),
            ("state", one.state),
            ("progress", _progress(one)),
            ("done", one.done),
            ("skipped", one.skipped),
            ("failed", one.failed),
            ("filter", None if one.filter is None else mapping(dict(one.filter)) or "all jobs"),
            ("options", mapping(dict(one.options)) or None),
            ("as of", moment(one.as_of)),
            ("by", one.by or None),
            ("created", moment(one.created_at)),
            ("ended", moment(one.finished_at) if one.finished_at else None),
            ("error", one.error or None),
        ]
    )
    for problem in one.problems:
        click.echo(f"{plain(problem.job_id)}  {plain(problem.message)}")
