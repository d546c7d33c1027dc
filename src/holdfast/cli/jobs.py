"""Commands that read jobs: jobs, job, explain, failures."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.filters import filter_options, job_filter
from holdfast.cli.tables import facts, level, mapping, moment, span, state_shown, table
from holdfast.model.job import Failure, FailureCategory, LogLine, State, Transition
from holdfast.model.results import (
    AttemptInfo,
    FailureDetails,
    FailureSearchResult,
    JobStatus,
    SearchResult,
)
from holdfast.observe.logging import plain
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter
from holdfast.store import Order

cursor_option = click.option("--cursor", help="Continue after an earlier page.")
limit_option = click.option(
    "--limit", type=int, default=50, help="At most this many, up to 1000.  [50]"
)


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """What `job --json` prints: the job and the parts that were requested."""

    job: JobStatus
    logs: list[LogLine] | None = None
    failure: FailureDetails | None = None


@click.command()
@filter_options
@click.option(
    "--order",
    type=click.Choice(list(Order), case_sensitive=False),
    help="The order.  [CREATED_DESC]",
)
@cursor_option
@limit_option
@store_options
def jobs(url: str | None, as_json: bool, **given: object) -> None:
    """List jobs, newest first."""
    wanted = job_filter(given)
    result = on_store(url, lambda app: app.search(**wanted))
    answer(result, as_json=as_json, show=lambda: _show_jobs(result))


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--history", is_flag=True, help="Include every state transition.")
@click.option("--logs", is_flag=True, help="Include the lines that the handler logged.")
@click.option("--failure", is_flag=True, help="Include how each attempt failed.")
@store_options
def job(
    job_id: str, history: bool, logs: bool, failure: bool, url: str | None, as_json: bool
) -> None:
    """Show one job."""

    async def operate(app: Holdfast) -> JobPage:
        return JobPage(
            job=await app.get(job_id, include_history=history),
            logs=await app.logs(job_id) if logs else None,
            failure=await app.failure(job_id) if failure else None,
        )

    page = on_store(url, operate)
    answer(page, as_json=as_json, show=lambda: _show_job(page))


@click.command()
@click.argument("job_id", metavar="ID")
@store_options
def explain(job_id: str, url: str | None, as_json: bool) -> None:
    """Explain in one sentence why a job is not running."""
    result = on_store(url, lambda app: app.explain(job_id))
    answer(result, as_json=as_json, show=lambda: _show_explanation(result))


@click.command()
@click.option("--type", "types", multiple=True, help="Only this type; may be repeated.")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([State.FAILED, State.DEAD_LETTER, State.RETRYING], case_sensitive=False),
    help="Only this state; may be repeated.",
)
@click.option(
    "--category",
    "failure_category",
    multiple=True,
    type=click.Choice(list(FailureCategory), case_sensitive=False),
    help="Only this category; may be repeated.",
)
@click.option("--code", "error_code", help="Only this error code.")
@click.option("--after", metavar="TIME", help="Failed at or after this time.")
@click.option("--before", metavar="TIME", help="Failed before this time.")
@cursor_option
@limit_option
@store_options
def failures(url: str | None, as_json: bool, **given: Any) -> None:
    """List failed jobs, newest failure first, and count failures by category, code and type."""
    wanted: FailureFilter = {k: v for k, v in given.items() if v not in (None, ())}  # type: ignore[assignment]
    result = on_store(url, lambda app: app.failures(**wanted))
    answer(result, as_json=as_json, show=lambda: _show_failures(result))


def _show_jobs(result: SearchResult) -> None:
    table(
        ("ID", "TYPE", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "CREATED"),
        [
            (
                job.job_id,
                job.type,
                job.queue,
                job.state,
                level(job.priority),
                f"{job.attempt}/{job.max_attempts}",
                moment(job.created_at),
            )
            for job in result.jobs
        ],
    )
    _show_rest(result.total_count, result.next_cursor, exact=result.total_exact)


def _show_rest(total: int, cursor: str | None, *, exact: bool = True) -> None:
    click.echo(f"{total}{'' if exact else ' or more'} in all")
    if cursor:
        click.echo(f"more with --cursor {cursor}")


def _show_job(page: JobPage) -> None:
    job = page.job
    output = None if job.output is None else msgspec.json.encode(job.output).decode()
    facts(
        [
            ("id", job.job_id),
            ("type", job.type),
            ("queue", job.queue),
            ("state", state_shown(job.state)),
            ("word", job.word if job.word != job.state else None),
            ("priority", level(job.priority)),
            ("attempt", f"{job.attempt} of {job.max_attempts}"),
            ("created", moment(job.created_at)),
            ("due", moment(job.scheduled_for) if job.state is State.DELAYED else None),
            ("started", moment(job.started_at) if job.started_at else None),
            ("ended", moment(job.completed_at) if job.completed_at else None),
            ("took", span(job.result.duration) if job.result and job.result.duration else None),
            ("worker", job.worker),
            ("progress", _progress(job)),
            ("cancel", "requested" if job.cancel_requested and not job.completed_at else None),
            ("held", "until it is released" if job.held else None),
            ("depends on", " ".join(job.depends_on)),
            ("spawned by", job.spawned_by),
            ("tags", mapping(dict(job.tags))),
            ("headers", mapping(dict(job.headers))),
            ("correlation", job.correlation_id),
            ("output", output),
            ("error", _error(job.failure)),
        ]
    )
    if job.history is not None:
        _show_history(job.history)
    if page.failure is not None:
        _show_attempts(page.failure.attempts)
    if page.logs is not None:
        click.echo()
        table(
            ("TIME", "ATTEMPT", "LEVEL", "MESSAGE"),
            [
                (
                    moment(line.at),
                    line.attempt,
                    line.level,
                    f"{line.message} {mapping(dict(line.fields))}",
                )
                for line in page.logs
            ],
        )


def _show_history(history: tuple[Transition, ...]) -> None:
    click.echo()
    table(
        ("TIME", "STATE", "ATTEMPT", "WORKER", "WHY"),
        [
            (moment(e.at), e.to_state, e.attempt or "", e.worker, f"{e.event}: {e.reason}")
            for e in history
        ],
    )


def _show_attempts(attempts: tuple[AttemptInfo, ...]) -> None:
    for one in attempts:
        click.echo()
        took = one.finished_at - one.started_at if one.finished_at else None
        click.secho(f"attempt {one.attempt}: {one.result}", bold=True)
        click.echo(f"  {moment(one.started_at)}, {span(took)}, worker {plain(one.worker)}")
        if one.failure is not None:
            click.echo(f"  {_error(one.failure)}")
            for line in one.failure.stack_trace.splitlines():
                click.echo(f"    {plain(line)}")


def _show_explanation(result: Explanation) -> None:
    click.echo(f"{plain(result.job_id)} is {state_shown(result.state)}: {plain(result.message)}")


def _show_failures(result: FailureSearchResult) -> None:
    table(
        ("ID", "TYPE", "STATE", "ATTEMPTS", "CATEGORY", "CODE", "MESSAGE"),
        [
            (
                one.job_id,
                one.type,
                one.final_state,
                one.total_attempts,
                one.failure.category if one.failure else "-",
                one.failure.code if one.failure else "-",
                one.failure.message if one.failure else "-",
            )
            for one in result.failures
        ],
    )
    _show_rest(result.total_count, result.next_cursor)
    for name, counts in (
        ("category", result.by_category),
        ("code", result.by_code),
        ("type", result.by_type),
    ):
        if counts:
            click.echo(f"by {name}: {plain(mapping(dict(counts)))}")


def _progress(job: JobStatus) -> str | None:
    return f"{job.progress.percent} % {job.progress.message}" if job.progress else None


def _error(failure: Failure | None) -> str | None:
    return f"{failure.category} {failure.code}: {plain(failure.message)}" if failure else None
