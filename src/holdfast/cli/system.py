"""Commands about the whole system: stats, events, config."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import click

from holdfast import config as settings
from holdfast.app import Holdfast
from holdfast.cli.common import answer, json_line, json_option, on_store, store_options, url_option
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import facts, moment, span, table
from holdfast.model.statistics import Breakdown, Counts, LatencyStats, QueueStats
from holdfast.model.status import EventInfo
from holdfast.observe.logging import plain

COUNTS = tuple(Counts.__struct_fields__)


@click.command()
@click.option("--time-range", type=SPAN, default="3600", help="The time window.  [1 h]")
@click.option(
    "--by",
    "breakdown_by",
    multiple=True,
    type=click.Choice(list(Breakdown), case_sensitive=False),
    help="Count by this as well; may be repeated.",
)
@store_options
def stats(
    time_range: timedelta, breakdown_by: tuple[str, ...], url: str | None, as_json: bool
) -> None:
    """Show counts, rates and latencies."""
    found = on_store(url, lambda app: app.stats(time_range=time_range, breakdown_by=breakdown_by))
    answer(found, as_json=as_json, show=lambda: _show_stats(found))


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events.")
@click.option("--after", metavar="CURSOR", help="Start after this event.")
@click.option("--type", "types", multiple=True, help="Only jobs of this type.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
@url_option
def events(
    follow: bool, after: str | None, types: tuple[str, ...], as_json: bool, url: str | None
) -> None:
    """Show recent events of jobs; --follow prints new ones as they happen."""

    async def watch(app: Holdfast) -> None:
        async for event in app.events(after=after, follow=follow):
            if not types or event.type in types:
                click.echo(json_line(event) if as_json else _line(event))

    on_store(url, watch)


@click.command()
@url_option
@json_option
def config(url: str | None, as_json: bool) -> None:
    """Show every setting with its value and source."""
    found = settings.load(flags={"url": url}).all()
    document = {
        one.key: {"value": settings.shown(one.key, one.value), "source": one.source}
        for one in found
    }
    rows = [
        (
            one.key,
            settings.shown(one.key, one.value) or "-",
            one.source,
            settings.SETTINGS[one.key].help,
        )
        for one in found
    ]
    head = ("KEY", "VALUE", "SOURCE", "MEANING")
    answer(document, as_json=as_json, show=lambda: table(head, rows))


def _show_stats(found: QueueStats) -> None:
    click.echo(f"Live jobs as they are now; the rest over the last {span(found.time_range)}.\n")
    facts([(name.replace("_", " "), getattr(found, name)) for name in COUNTS])
    rates = (found.submission_rate, found.completion_rate, found.failure_rate)
    oldest = span(found.oldest_ready_seconds)
    click.echo(f"oldest ready job: {oldest}")
    click.echo("\njobs/s: {:.2f} submitted, {:.2f} completed, {:.2f} failed\n".format(*rates))
    table(
        ("TIME", "P50", "P90", "P99", "MAX"),
        [_latency("in queue", found.queue_latency), _latency("running", found.execution_time)],
    )
    for name in ("queue", "type", "priority", "state"):
        counts: Mapping[str, Counts] | None = getattr(found, f"by_{name}")
        if counts is not None:
            click.echo()
            rows = [(key, *(getattr(c, field) for field in COUNTS)) for key, c in counts.items()]
            table((name.upper(), *(field.upper() for field in COUNTS)), rows)


def _latency(name: str, found: LatencyStats) -> tuple[str, ...]:
    return (name, span(found.p50), span(found.p90), span(found.p99), span(found.max))


def _line(event: EventInfo) -> str:
    if event.transition is not None:
        text = f"{event.transition.to_state}  {plain(event.transition.reason)}"
    elif event.progress is not None:
        text = f"{event.progress.percent} %  {plain(event.progress.message)}"
    else:
        text = str(event.kind)
    return f"{moment(event.timestamp)}  {plain(event.job_id)}  {plain(event.type)}  {text}"
