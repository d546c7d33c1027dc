"""Commands about schedules: list, create, change, pause, resume, run, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.spans import SPAN
from holdfast.cli.submit import tags_of
from holdfast.cli.tables import facts, moment_in, table
from holdfast.tasks.schedule import MissedRuns
from holdfast.tasks.schedule_values import ScheduleInfo

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_MISSED = click.Choice([each.value for each in MissedRuns])


def _definition(command: F) -> F:
    """Add the options that create and change have in common."""
    for option in reversed(
        [
            click.option("--payload", help="The payload of each job, as JSON."),
            click.option("--missed", type=_MISSED, help="What happens to missed instants."),
            click.option("--queue", help="The queue of its jobs."),
            click.option("--priority", help="The priority of its jobs."),
            click.option("--timeout", type=SPAN, help="How long one attempt may take."),
            click.option("--max-attempts", type=int, help="How often a job is attempted."),
            click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag."),
        ]
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def schedules(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List schedules; create, change, pause, resume, run or delete one."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = on_store(url, _all, contents=True)
    answer(found, as_json=as_json, show=lambda: _show_all(found))


@schedules.command()
@click.argument("name")
@store_options
@click.pass_context
def show(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Show a schedule with its next and last runs."""
    found = _on(ctx, url, lambda app: app.schedules.get(name))
    answer(found, as_json=as_json, show=lambda: _show_one(found))


@schedules.command()
@click.argument("name")
@click.argument("type_", metavar="TYPE")
@click.argument("expression", metavar="CRON")
@click.option("--tz", default="UTC", show_default=True, help="The time zone.")
@click.option("--paused", is_flag=True, help="Create it paused.")
@_definition
@store_options
@click.pass_context
def create(  # one parameter per argument
    ctx: click.Context,
    /,
    name: str,
    type_: str,
    expression: str,
    tz: str,
    paused: bool,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Submit jobs of TYPE at the times of the expression CRON, from now on."""
    wanted = _wanted(given)
    made = _on(
        ctx,
        url,
        lambda app: app.schedules.create(
            name,
            type_,
            expression,
            tz=tz,
            paused=paused,
            **wanted,  # type: ignore[arg-type]  # checked by the operation
        ),
    )
    answer(made, as_json=as_json, show=lambda: _show_one(made))


@schedules.command()
@click.argument("name")
@click.option("--cron", "expression", help="Another expression.")
@click.option("--tz", help="Another time zone.")
@_definition
@store_options
@click.pass_context
def change(
    ctx: click.Context,
    /,
    name: str,
    expression: str | None,
    tz: str | None,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Change a dynamic schedule; options of its jobs that are given replace all the old ones."""
    wanted = _wanted(given)
    made = _on(
        ctx,
        url,
        lambda app: app.schedules.change(name, expression=expression, tz=tz, **wanted),  # type: ignore[arg-type]
    )
    answer(made, as_json=as_json, show=lambda: _show_one(made))


@schedules.command()
@click.argument("name")
@store_options
@click.pass_context
def pause(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Pause a schedule, also one of the code."""
    after = _on(ctx, url, lambda app: app.schedules.pause(name))
    answer(after, as_json=as_json, show=lambda: click.echo(f"schedule {name} is paused"))


@schedules.command()
@click.argument("name")
@store_options
@click.pass_context
def resume(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Resume a schedule."""
    after = _on(ctx, url, lambda app: app.schedules.resume(name))
    answer(after, as_json=as_json, show=lambda: click.echo(f"schedule {name} is running"))


@schedules.command()
@click.argument("name")
@store_options
@click.pass_context
def run(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Submit a job of a schedule now, beside its ticks."""
    result = _on(ctx, url, lambda app: app.schedules.run(name))
    answer(result, as_json=as_json, show=lambda: click.echo(result.job_id))


@schedules.command()
@click.argument("name")
@store_options
@click.pass_context
def delete(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Delete a dynamic schedule; its jobs stay."""
    _on(ctx, url, lambda app: app.schedules.delete(name))
    report = {"schedule": name, "deleted": True}
    answer(report, as_json=as_json, show=lambda: click.echo(f"schedule {name} is deleted"))


async def _all(app: Holdfast) -> list[ScheduleInfo]:
    found: list[ScheduleInfo] = []
    while page := await app.schedules.list(after=found[-1].name if found else ""):
        found += page
    return found


def _on(ctx: click.Context, url: str | None, operate: Callable[[Holdfast], Awaitable[T]]) -> T:
    return on_store(url or ctx.obj, operate, contents=True)


def _wanted(given: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords of create and change for the options of a command."""
    options = {
        name: given[name]
        for name in ("queue", "priority", "timeout", "max_attempts")
        if given[name] is not None
    }
    if tags := tags_of(given["tags"]):  # type: ignore[arg-type]  # click made a tuple
        options["tags"] = tags
    wanted: dict[str, object] = {"options": options} if options else {}
    if given["missed"] is not None:
        wanted["missed"] = given["missed"]
    if isinstance(payload := given["payload"], str):
        try:
            wanted["payload"] = msgspec.json.decode(payload)
        except msgspec.DecodeError as error:
            raise click.BadParameter(f"must be JSON: {error}", param_hint="--payload") from None
    return wanted


def _show_all(found: Sequence[ScheduleInfo]) -> None:
    table(
        ("SCHEDULE", "SOURCE", "TYPE", "CRON", "ZONE", "NEXT", "LAST RUN", "STATE", "IN WORDS"),
        [
            (
                one.name,
                one.source,
                one.type,
                one.expression,
                one.tz,
                moment_in(one.tz, one.next_runs[0]) if one.next_runs else "-",
                one.last_runs[0].state if one.last_runs else "-",
                "paused" if one.paused else "running" if one.served else "no worker",
                one.words,
            )
            for one in found
        ],
    )


def _show_one(schedule: ScheduleInfo) -> None:
    facts(
        [
            ("schedule", schedule.name),
            ("source", schedule.source),
            ("type", schedule.type),
            ("queue", schedule.queue),
            ("cron", f"{schedule.expression} ({schedule.words}, {schedule.tz})"),
            ("missed", schedule.missed),
            ("paused", "yes" if schedule.paused else "no"),
            *(("next run", moment_in(schedule.tz, instant)) for instant in schedule.next_runs),
            *(
                ("last run", f"{moment_in(schedule.tz, run.created_at)} {run.job_id} {run.state}")
                for run in schedule.last_runs
            ),
        ]
    )
