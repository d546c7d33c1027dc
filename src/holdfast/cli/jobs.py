"""Commands that read jobs: jobs, job, explain, failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
import msgspec
from msgspec import UNSET, UnsetType

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.filters import filter_options, job_filter
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import facts, level, mapping, moment, span, state_shown, table
from holdfast.model.job import FailureCategory, State
from holdfast.model.profiles import STANDARD
from holdfast.model.results import AttemptInfo, FailureSearchResult, JobSearchResult
from holdfast.model.status import (
    FailureInfo,
    JobStatus,
    LogEntry,
    OutputEncoding,
    StateTransition,
)
from holdfast.observe.logging import plain
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter
from holdfast.operations.origins import JobSetting, JobSettings, Origin
from holdfast.store import Order

cursor_option = click.option("--cursor", help="Continue after an earlier page.")
limit_option = click.option(
    "--limit", type=int, default=50, help="At most this many, up to 1000.  [50]"
)


class JobPage(JobStatus, frozen=True, kw_only=True):
    """What `job` prints: the job, and beside it the parts that were requested."""

    settings: JobSettings | UnsetType = UNSET
    logs: list[LogEntry] | UnsetType = UNSET
    attempts: tuple[AttemptInfo, ...] | UnsetType = UNSET
    payload: object = UNSET


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
@click.option("--settings", is_flag=True, help="Include what governs it, and who gave that.")
@click.option("--payload", is_flag=True, help="Include the payload; bytes as base64.")
@store_options
def job(  # one parameter per part
    job_id: str,
    history: bool,
    logs: bool,
    failure: bool,
    settings: bool,
    payload: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Show one job."""

    async def operate(app: Holdfast) -> JobPage:
        found = await app.get(job_id, include_history=history)
        return JobPage(
            **{name: getattr(found, name) for name in found.__struct_fields__},
            settings=(await app.explain(job_id)).settings if settings else UNSET,
            logs=await app.logs(job_id) if logs else UNSET,
            attempts=(await app.failure(job_id)).attempts if failure else UNSET,
            payload=(await app.payload(job_id)).payload if payload else UNSET,
        )

    page = on_store(url, operate, contents=payload or logs or failure)
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
@click.option("--time-range", type=SPAN, help="Failed within this time up to now.")
@cursor_option
@limit_option
@store_options
def failures(url: str | None, as_json: bool, **given: Any) -> None:
    """List failed jobs, newest failure first, and count failures by category, code and type."""
    wanted: FailureFilter = {k: v for k, v in given.items() if v not in (None, ())}  # type: ignore[assignment]
    result = on_store(url, lambda app: app.failures(**wanted))
    answer(result, as_json=as_json, show=lambda: _show_failures(result))


def _show_jobs(result: JobSearchResult) -> None:
    table(
        ("ID", "TYPE", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "CREATED"),
        [
            (
                job.job_id,
                job.type,
                job.queue,
                job.state,
                level(job.priority_level),
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


def _payload(payload: object) -> str | None:
    return None if payload is UNSET else msgspec.json.encode(payload).decode()


def _show_job(job: JobPage) -> None:
    output = None if job.output is None else msgspec.json.encode(job.output).decode()
    facts(
        [
            ("id", job.job_id),
            ("type", job.type),
            ("queue", job.queue),
            ("state", state_shown(job.state)),
            ("word", job.profile_state if job.profile_state != job.state else None),
            ("priority", level(job.priority_level)),
            ("attempt", f"{job.attempt} of {job.max_attempts}"),
            ("created", moment(job.created_at)),
            ("due", moment(job.scheduled_for) if job.state is State.DELAYED else None),
            ("started", moment(job.started_at) if job.started_at else None),
            ("ended", moment(job.completed_at) if job.completed_at else None),
            ("took", _took(job)),
            ("worker", job.worker_id),
            ("progress", _progress(job)),
            ("cancel", "requested" if job.cancel_requested and not job.completed_at else None),
            ("held", "until it is released" if job.held else None),
            ("depends on", " ".join(job.depends_on)),
            ("spawned by", job.spawned_by),
            ("tags", mapping(dict(job.tags))),
            ("headers", mapping(dict(job.headers))),
            ("correlation", job.correlation_id),
            ("callback", job.callback_url),
            ("payload", _payload(job.payload)),
            ("output", output),
            ("encoding", _encoding(job)),
            ("error", _error(job.failure)),
        ]
    )
    if job.settings is not UNSET:
        _show_settings(job.settings)
    if job.history is not None:
        _show_history(job.history)
    if job.attempts is not UNSET:
        _show_attempts(job.attempts)
    if job.logs is not UNSET:
        click.echo()
        table(
            ("TIME", "ATTEMPT", "LEVEL", "MESSAGE"),
            [
                (
                    moment(line.timestamp),
                    line.attempt,
                    line.level,
                    f"{line.message} {mapping(dict(line.fields))}",
                )
                for line in job.logs
            ],
        )


def _show_history(history: tuple[StateTransition, ...]) -> None:
    click.echo()
    table(
        ("TIME", "STATE", "ATTEMPT", "WORKER", "WHY"),
        [
            (
                moment(e.timestamp),
                e.to_state,
                e.attempt or "",
                e.worker_id,
                f"{e.event}: {e.reason}",
            )
            for e in history
        ],
    )


def _show_attempts(attempts: tuple[AttemptInfo, ...]) -> None:
    for one in attempts:
        click.echo()
        took = max(timedelta(0), one.finished_at - one.started_at) if one.finished_at else None
        click.secho(f"attempt {one.attempt}: {one.result}", bold=True)
        click.echo(f"  {moment(one.started_at)}, {span(took)}, worker {plain(one.worker_id)}")
        if one.failure is not None:
            click.echo(f"  {_error(one.failure)}")
            for line in one.failure.stack_trace.splitlines():
                click.echo(f"    {plain(line)}")


def _show_explanation(result: Explanation) -> None:
    click.echo(f"{plain(result.job_id)} is {state_shown(result.state)}: {plain(result.message)}")
    declared = _named(result.settings, Origin.TASK)
    if declared:
        worker = plain(result.settings.declared_by or "-")
        click.echo(f"its task declares {declared} (published by worker {worker})")
    if result.settings.profile != STANDARD.name and _named(result.settings, Origin.PROFILE):
        profile = plain(result.settings.profile)
        click.echo(f"profile {profile} gives {_named(result.settings, Origin.PROFILE)}")


def _named(settings: JobSettings, origin: Origin) -> str:
    names = [name for name, each in settings.values.items() if each.origin is origin]
    return ", ".join(names).replace("_", " ")


def _show_settings(settings: JobSettings) -> None:
    origins = {
        Origin.JOB: "the job",
        Origin.TASK: f"the task, declared by worker {plain(settings.declared_by or '-')}",
        Origin.PROFILE: f"profile {plain(settings.profile)}",
    }
    if settings.values:
        click.echo()
        table(
            ("SETTING", "VALUE", "FROM"),
            [
                (name.replace("_", " "), _setting(each), origins[each.origin])
                for name, each in settings.values.items()
            ],
        )


def _setting(setting: JobSetting) -> str:
    match setting.value:
        case bool() as flag:
            return "yes" if flag else "no"
        case float() as seconds:
            return span(timedelta(seconds=seconds))
        case value:
            return plain(str(value))


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


def _encoding(job: JobStatus) -> str | None:
    """Return the encoding of an output that is not plain JSON."""
    encoding = job.result.output_encoding if job.result else OutputEncoding.JSON
    return None if encoding is OutputEncoding.JSON else encoding


def _took(job: JobStatus) -> str | None:
    took = job.result.duration_ms if job.result else None
    return None if took is None else span(took / 1000)


def _progress(job: JobStatus) -> str | None:
    return f"{job.progress.percent} % {job.progress.message}" if job.progress else None


def _error(failure: FailureInfo | None) -> str | None:
    if failure is None:
        return None
    return f"{failure.category} {plain(failure.code)}: {plain(failure.message)}"
