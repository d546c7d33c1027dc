"""Commands about queues: list, pause, resume, ageing."""

from __future__ import annotations

import getpass
from datetime import timedelta

import click

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import facts, moment, span, table
from holdfast.model.job import State
from holdfast.runtime.clock import SystemClock
from holdfast.store import QueueInfo

SHOWN = (
    State.PENDING,
    State.SCHEDULED,
    State.DELAYED,
    State.RUNNING,
    State.RETRYING,
    State.COMPLETED,
    State.FAILED,
    State.DEAD_LETTER,
    State.CANCELLED,
)


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def queues(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List queues with their counts; pause, resume or age a queue.

    SCHEDULED jobs are ready to run; DELAYED jobs wait for their time."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = on_store(url, lambda app: app.queues())
    answer(found, as_json=as_json, show=lambda: _show(found))


@queues.command()
@click.argument("name")
@click.option("--reason", default="", help="Why, for others to see.")
@click.option("--until", metavar="TIME", help="When it resumes by itself.")
@click.option("--for", "for_", type=SPAN, help="How long, in place of --until.")
@store_options
@click.pass_context
def pause(  # one parameter per option
    ctx: click.Context,
    name: str,
    reason: str,
    until: str | None,
    for_: timedelta | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Pause a queue: no further job starts, running jobs finish."""
    if until and for_:
        raise click.UsageError("give --until or --for, not both")
    end = SystemClock().now() + for_ if for_ else until

    async def operate(app: Holdfast) -> bool:
        is_known = any(queue.name == name for queue in await app.queues())
        is_known = is_known or any(name in worker.queues for worker in await app.workers())
        await app.pause(name, reason=reason, until=end, by=getpass.getuser())
        return is_known

    text = f"queue {name} is paused"
    if not on_store(url or ctx.obj, operate):
        text = f"no job and no worker has used queue {name}; it is paused all the same"
    report = {"queue": name, "paused": True}
    answer(report, as_json=as_json, show=lambda: click.echo(text))


@queues.command()
@click.argument("name")
@store_options
@click.pass_context
def resume(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Resume a queue."""
    on_store(url or ctx.obj, lambda app: app.resume(name))
    report = {"queue": name, "paused": False}
    answer(report, as_json=as_json, show=lambda: click.echo(f"queue {name} is running"))


@queues.command()
@click.argument("name")
@click.argument("interval", metavar="SPAN|off")
@store_options
@click.pass_context
def ageing(ctx: click.Context, name: str, interval: str, url: str | None, as_json: bool) -> None:
    """Raise ready jobs by one priority level for every SPAN that they wait.

    Without ageing, a job of low priority waits as long as there are more urgent ones."""
    every = None if interval == "off" else SPAN.convert(interval, None, ctx)
    on_store(url or ctx.obj, lambda app: app.set_ageing(name, every))
    text = "does not age" if every is None else f"ages every {interval}"
    report = {"queue": name, "ageing": None if every is None else interval}
    answer(report, as_json=as_json, show=lambda: click.echo(f"queue {name} {text}"))


@queues.command()
@click.argument("name")
@click.option("--slots", default=20, show_default=True, help="Slots of one worker.")
@store_options
@click.pass_context
def scale(ctx: click.Context, name: str, slots: int, url: str | None, as_json: bool) -> None:
    """Show how many workers the jobs of a queue would fill."""
    found = on_store(url or ctx.obj, lambda app: app.scale(name, slots=slots))
    facts_of = [
        ("queue", found.queue),
        ("ready", found.ready),
        ("running", found.running),
        ("oldest ready", span(found.oldest_ready_seconds)),
        ("desired workers", found.desired_workers),
    ]
    answer(found, as_json=as_json, show=lambda: facts(facts_of))


def _show(found: list[QueueInfo]) -> None:
    table(
        ("QUEUE", *SHOWN, "OLDEST READY", "SETTINGS"),
        [
            (
                queue.name,
                *(queue.counts.get(state, 0) for state in SHOWN),
                span(queue.activity.oldest_ready_seconds if queue.activity else None),
                _settings(queue),
            )
            for queue in found
        ],
    )


def _settings(queue: QueueInfo) -> str:
    settings = [_pause(queue)] if queue.paused else []
    if queue.ageing:
        settings.append(f"ageing {span(queue.ageing)}")
    if queue.activity and queue.activity.held_back_by:
        settings.append(f"held back by {', '.join(queue.activity.held_back_by)}")
    return ", ".join(settings)


def _pause(queue: QueueInfo) -> str:
    pause = queue.pause
    if pause is None:
        return "paused"
    until = f" until {moment(pause.until)}" if pause.until else ""
    by = f" by {pause.by}" if pause.by else ""
    return f"paused{by}{until}" + (f" ({pause.reason})" if pause.reason else "")
