"""Commands about queues: list, pause, resume, ageing."""

from __future__ import annotations

import click

from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.submit import span_or_text
from holdfast.cli.tables import span, table
from holdfast.model.job import State
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
@store_options
@click.pass_context
def pause(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Pause a queue: no further job starts, running jobs finish."""
    on_store(url or ctx.obj, lambda app: app.pause(name))
    report = {"queue": name, "paused": True}
    answer(report, as_json=as_json, show=lambda: click.echo(f"queue {name} is paused"))


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
    every = None if interval == "off" else span_or_text(interval)
    on_store(url or ctx.obj, lambda app: app.set_ageing(name, every))
    text = "does not age" if every is None else f"ages every {interval}"
    report = {"queue": name, "ageing": None if every is None else interval}
    answer(report, as_json=as_json, show=lambda: click.echo(f"queue {name} {text}"))


def _show(found: list[QueueInfo]) -> None:
    table(
        ("QUEUE", *SHOWN, "SETTINGS"),
        [
            (queue.name, *(queue.counts.get(state, 0) for state in SHOWN), _settings(queue))
            for queue in found
        ],
    )


def _settings(queue: QueueInfo) -> str:
    settings = ["paused"] if queue.paused else []
    if queue.ageing:
        settings.append(f"ageing {span(queue.ageing)}")
    return ", ".join(settings)
