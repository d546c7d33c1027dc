"""Commands that change jobs: cancel, retry, release, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import FAILED, USAGE, CommandError
from holdfast.cli.filters import filter_options, job_filter
from holdfast.cli.submit import span_or_text
from holdfast.cli.tables import table
from holdfast.model.job import Priority
from holdfast.model.results import (
    BatchCancellationResult,
    CancellationStatus,
    DeletionStatus,
    ReleaseStatus,
    RetryStatus,
)

T = TypeVar("T")

ids_argument = click.argument("job_ids", metavar="ID...", nargs=-1, required=True)


@click.command()
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("--reason", default="", help="The reason; recorded in the job's history.")
@click.option("--force", is_flag=True, help="Interrupt running jobs.")
@click.option("--dry-run", is_flag=True, help="Only count the jobs that would be cancelled.")
@filter_options
@store_options
def cancel(
    job_ids: tuple[str, ...],
    reason: str,
    force: bool,
    dry_run: bool,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Cancel jobs, by id or by filter. A running job stops at its next checkpoint."""
    wanted = job_filter(given)
    if bool(job_ids) == bool(wanted):
        raise CommandError("give job ids, or filters such as --type, but not both", USAGE)
    if len(job_ids) != 1 or dry_run:
        _cancel_many(job_ids, given, url, as_json, reason=reason, force=force, dry_run=dry_run)
        return
    result = on_store(url, lambda app: app.cancel(job_ids[0], reason=reason, force=force))
    text = f"{result.status}: {result.message}" if result.message else str(result.status)
    answer(result, as_json=as_json, show=lambda: click.echo(f"{result.job_id}  {text}"))
    if result.status in (CancellationStatus.NOT_FOUND, CancellationStatus.ALREADY_COMPLETE):
        raise click.exceptions.Exit(FAILED)


@click.command()
@ids_argument
@click.option("--reset-attempts", is_flag=True, help="Reset the attempt counter.")
@click.option(
    "--priority",
    type=click.Choice([p.name for p in Priority], case_sensitive=False),
    help="Set another priority.",
)
@click.option("--delay", metavar="SPAN", default="0", help="Wait this long before the retry.")
@store_options
def retry(
    job_ids: tuple[str, ...],
    reset_attempts: bool,
    priority: str | None,
    delay: str,
    url: str | None,
    as_json: bool,
) -> None:
    """Retry FAILED or DEAD_LETTER jobs: one further attempt, or all with --reset-attempts."""
    results = _each(
        url,
        job_ids,
        lambda app, job_id: app.retry(
            job_id, reset_attempts=reset_attempts, priority=priority, delay=span_or_text(delay)
        ),
    )
    _report([(r.job_id, r.status, r.new_state or "") for r in results], results, as_json)
    _fail_unless([r.status is RetryStatus.QUEUED for r in results])


@click.command()
@ids_argument
@store_options
def release(job_ids: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Release jobs that were submitted with --hold."""
    results = _each(url, job_ids, lambda app, job_id: app.release(job_id))
    _report([(r.job_id, r.status, r.new_state or "") for r in results], results, as_json)
    _fail_unless([r.status is ReleaseStatus.RELEASED for r in results])


@click.command()
@ids_argument
@store_options
def delete(job_ids: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Delete finished jobs that no live job depends on."""
    results = _each(url, job_ids, lambda app, job_id: app.delete(job_id))
    _report([(r.job_id, r.status, "") for r in results], results, as_json)
    _fail_unless([r.status is DeletionStatus.DELETED for r in results])


def _cancel_many(
    job_ids: tuple[str, ...],
    given: dict[str, object],
    url: str | None,
    as_json: bool,
    *,
    reason: str,
    force: bool,
    dry_run: bool,
) -> None:
    result = on_store(
        url,
        lambda app: app.cancel_batch(
            job_ids=list(job_ids) or None,
            filter=None if job_ids else job_filter(given),
            reason=reason,
            force=force,
            dry_run=dry_run,
        ),
    )
    answer(result, as_json=as_json, show=lambda: _show_batch(result))
    _fail_unless([not result.failed])


def _show_batch(result: BatchCancellationResult) -> None:
    word = "would be cancelled" if result.dry_run else "cancelled"
    click.echo(
        f"{result.cancelled} of {result.requested} {word},"
        f" {result.skipped} already finished, {result.failed} not found"
    )
    for error in result.errors:
        click.echo(f"{error.job_id}  {error.status}")


def _each(
    url: str | None, ids: tuple[str, ...], operate: Callable[[Holdfast, str], Awaitable[T]]
) -> list[T]:
    async def work(app: Holdfast) -> list[T]:
        return [await operate(app, job_id) for job_id in ids]

    return on_store(url, work)


def _report(rows: list[tuple[str, str, str]], results: Sequence[object], as_json: bool) -> None:
    """Print the result of one job as an object, like `cancel`, and of several as a list."""
    value = results[0] if len(results) == 1 else results
    answer(value, as_json=as_json, show=lambda: table(("ID", "STATUS", "STATE"), rows))


def _fail_unless(done: list[bool]) -> None:
    if not all(done):
        raise click.exceptions.Exit(FAILED)
