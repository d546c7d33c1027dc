"""Commands that change jobs: cancel, retry, update, release, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypedDict, TypeVar, cast

import click

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import FAILED, USAGE, CommandError
from holdfast.cli.filters import (
    filter_options,
    filter_options_without_priority,
    selection_options,
)
from holdfast.cli.operations import job_selection, start_operation
from holdfast.cli.spans import SPAN
from holdfast.cli.submit import tags_of
from holdfast.cli.tables import table
from holdfast.model.amendment import JobMetadata
from holdfast.model.job import Priority
from holdfast.model.results import (
    BatchCancellationResult,
    BatchDeletionResult,
    BatchRetryResult,
    CancellationStatus,
    DeletionStatus,
    ReleaseStatus,
    RetryStatus,
    UpdateStatus,
)
from holdfast.model.times import Span

T = TypeVar("T")

ids_argument = click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
ids_or_filter = click.argument("job_ids", metavar="[ID]...", nargs=-1)


@click.command()
@ids_or_filter
@click.option("--reason", default="", help="The reason; recorded in the job's history.")
@click.option("--force", is_flag=True, help="Interrupt running jobs.")
@selection_options
@filter_options
@store_options
def cancel(
    job_ids: tuple[str, ...],
    reason: str,
    force: bool,
    dry_run: bool,
    background: bool,
    as_of: str | None,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Cancel jobs, by id or by filter. A running job stops at its next checkpoint."""
    selection = job_selection(job_ids, given, as_of, dry_run)
    if background:
        start_operation(url, as_json, "cancel", selection, {"reason": reason, "force": force})
        return
    if len(job_ids) == 1 and not dry_run and not as_of:
        _cancel_one(job_ids[0], url, as_json, reason=reason, force=force)
        return
    result = on_store(url, lambda app: app.cancel_batch(**selection, reason=reason, force=force))
    counts = (result.requested, result.cancelled, result.skipped)
    answer(result, as_json=as_json, show=lambda: _show_batch(result, "cancelled", counts))
    _fail_unless([not result.failed])


def _cancel_one(job_id: str, url: str | None, as_json: bool, *, reason: str, force: bool) -> None:
    result = on_store(url, lambda app: app.cancel(job_id, reason=reason, force=force))
    text = f"{result.status}: {result.message}" if result.message else str(result.status)
    answer(result, as_json=as_json, show=lambda: click.echo(f"{result.job_id}  {text}"))
    if result.status in (CancellationStatus.NOT_FOUND, CancellationStatus.ALREADY_COMPLETE):
        raise click.exceptions.Exit(FAILED)


@click.command()
@ids_or_filter
@click.option("--reset-attempts", is_flag=True, help="Reset the attempt counter.")
@click.option(
    "--priority",
    type=click.Choice([p.name for p in Priority], case_sensitive=False),
    help="Set another priority.",
)
@click.option("--delay", type=SPAN, default="0", help="Wait this long before the retry.")
@selection_options
@filter_options_without_priority
@store_options
def retry(
    job_ids: tuple[str, ...],
    reset_attempts: bool,
    priority: str | None,
    delay: timedelta,
    dry_run: bool,
    as_of: str | None,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Retry FAILED or DEAD_LETTER jobs, by id or by filter.

    Each has one further attempt, or all of them with --reset-attempts, and waits for its
    dependencies again.
    """
    how = _Retry(reset_attempts=reset_attempts, priority=priority, delay=delay)
    background = given.pop("background")
    selection = job_selection(job_ids, given, as_of, dry_run)
    if background:
        start_operation(url, as_json, "retry", selection, {**how})
        return
    if job_ids and not dry_run and not as_of:
        results = _each(url, job_ids, lambda app, job_id: app.retry(job_id, **how))
        _report([(r.job_id, r.status, r.new_state or "") for r in results], results, as_json)
        _fail_unless([r.status is RetryStatus.QUEUED for r in results])
        return
    result = on_store(url, lambda app: app.retry_batch(**selection, **how))
    counts = (result.requested, result.retried, result.skipped)
    answer(result, as_json=as_json, show=lambda: _show_batch(result, "retried", counts))
    _fail_unless([not result.failed])


@click.command()
@ids_argument
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag; replaces all tags."
)
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@click.option("--correlation-id", metavar="ID", help="Your own id for correlation; '' removes it.")
@click.option(
    "--callback-url", metavar="URL", help="The address for a webhook at the end; '' removes it."
)
@click.option(
    "--priority",
    type=click.Choice([p.name for p in Priority], case_sensitive=False),
    help="The priority within the queue, while the job waits.",
)
@click.option("--delay", type=SPAN, help="Due this long from now, until it is ready; 0: at once.")
@click.option("--scheduled-at", metavar="TIME", help="Due at this time, until it is ready.")
@store_options
def update(
    job_ids: tuple[str, ...],
    tags: tuple[str, ...],
    no_tags: bool,
    delay: timedelta | None,
    url: str | None,
    as_json: bool,
    **plain: str | None,
) -> None:
    """Change tags, correlation id, callback address, priority or due time of jobs."""
    if tags and no_tags:
        raise CommandError("give --tag or --no-tags, but not both", USAGE)
    given = {
        "tags": tags_of(tags) if tags or no_tags else None,
        "delay": delay,
        **plain,
    }
    if all(value is None for value in given.values()):
        raise CommandError("give what to change, such as --tag or --priority", USAGE)
    metadata = cast("JobMetadata", given)
    results = _each(url, job_ids, lambda app, job_id: app.update(job_id, **metadata))
    _report([(r.job_id, r.status, r.state or "") for r in results], results, as_json)
    _fail_unless([r.status is UpdateStatus.UPDATED for r in results])


@click.command()
@ids_argument
@store_options
def release(job_ids: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Release jobs that were submitted with --hold."""
    results = _each(url, job_ids, lambda app, job_id: app.release(job_id))
    _report([(r.job_id, r.status, r.new_state or "") for r in results], results, as_json)
    _fail_unless([r.status is ReleaseStatus.RELEASED for r in results])


@click.command()
@ids_or_filter
@selection_options
@filter_options
@store_options
def delete(
    job_ids: tuple[str, ...],
    dry_run: bool,
    background: bool,
    as_of: str | None,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Delete finished jobs that no live job depends on, by id or by filter."""
    selection = job_selection(job_ids, given, as_of, dry_run)
    if background:
        start_operation(url, as_json, "delete", selection, {})
        return
    if job_ids and not dry_run and not as_of:
        results = _each(url, job_ids, lambda app, job_id: app.delete(job_id))
        _report([(r.job_id, r.status, "") for r in results], results, as_json)
        _fail_unless([r.status is DeletionStatus.DELETED for r in results])
        return
    result = on_store(url, lambda app: app.delete_batch(**selection))
    counts = (result.requested, result.deleted, result.skipped)
    answer(result, as_json=as_json, show=lambda: _show_batch(result, "deleted", counts))
    _fail_unless([not result.failed])


class _Retry(TypedDict):
    reset_attempts: bool
    priority: str | None
    delay: Span


def _show_batch(
    result: BatchCancellationResult | BatchRetryResult | BatchDeletionResult,
    word: str,
    counts: tuple[int, int, int],
) -> None:
    requested, changed, skipped = counts
    word = f"would be {word}" if result.dry_run else word
    click.echo(f"{changed} of {requested} {word}, {skipped} skipped, {result.failed} not found")
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
