"""Commands that show all jobs at once: failures by group, and measures over time."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import moment, span, table
from holdfast.model.failure_groups import FailureGroups
from holdfast.model.series import Series, SeriesLine

BARS = " ▁▂▃▄▅▆▇█"


@click.command("failure-groups")
@click.option("--time-range", type=SPAN, default="3600", help="The time window.  [1 h]")
@store_options
def failure_groups(time_range: timedelta, url: str | None, as_json: bool) -> None:
    """List failures in groups of the same type, code and kind of message.

    List the jobs of a group with: holdfast jobs --group ID
    """
    found = on_store(url, lambda app: app.failure_groups(time_range=time_range))
    answer(found, as_json=as_json, show=lambda: _show_groups(found))


@click.command()
@click.option("--time-range", type=SPAN, default="3600", help="At most 7 days.  [1 h]")
@click.option("--step", type=SPAN, help="60, 600 or 3600 seconds.  [by the range]")
@click.option("--queue", "queues", multiple=True, help="A line for this queue; may be repeated.")
@click.option("--type", "types", multiple=True, help="A line for this type; may be repeated.")
@click.option(
    "--by",
    "breakdown_by",
    multiple=True,
    type=click.Choice(["QUEUE", "TYPE"], case_sensitive=False),
    help="A line for every queue, or type.",
)
@store_options
def series(
    time_range: timedelta,
    step: timedelta | None,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    breakdown_by: tuple[str, ...],
    url: str | None,
    as_json: bool,
) -> None:
    """Show counts and latencies over time, of up to seven days."""
    found = on_store(
        url,
        lambda app: app.series(
            time_range=time_range,
            step=step,
            queues=queues,
            types=types,
            breakdown_by=breakdown_by,
        ),
    )
    answer(found, as_json=as_json, show=lambda: _show_series(found))


def sparkline(counts: tuple[int, ...], width: int = 30) -> str:
    """Return counts as a line of bars, neighbours joined until it has the width."""
    size = max(1, -(-len(counts) // width))
    sums = [sum(counts[first : first + size]) for first in range(0, len(counts), size)]
    top = max(sums, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // top)] for count in sums)


def _show_groups(found: FailureGroups) -> None:
    table(
        ("GROUP", "COUNT", "TYPE", "CODE", "LAST", f"PER {span(found.step)}", "MESSAGE"),
        [
            (
                one.group,
                one.count,
                one.type,
                one.code,
                moment(one.last_seen),
                sparkline(one.series),
                one.message,
            )
            for one in found.groups
        ],
    )
    now = sum(found.failed_now.values())
    click.echo(f"{found.total} failed since {moment(found.since)}, {now} are failed now")
    if found.ungrouped:
        click.echo(f"{found.ungrouped} of them are in no group")


def _show_series(found: Series) -> None:
    rows = [("all", found.total)]
    rows += [(f"queue {name}", line) for name, line in (found.by_queue or {}).items()]
    rows += [(f"type {name}", line) for name, line in (found.by_type or {}).items()]
    table(
        ("", "SUBMITTED", "COMPLETED", "FAILED", "WAIT P99", "RUN P99", f"PER {span(found.step)}"),
        [(name, *_sums(line), sparkline(line.completed, 60)) for name, line in rows],
    )
    click.echo(f"{found.points} steps since {moment(found.since)}")


def _sums(line: SeriesLine) -> tuple[object, ...]:
    """Return the counts of all steps, and the longest percentiles of any of them."""
    waits = [value for value in line.wait_p99 if value is not None]
    runs = [value for value in line.run_p99 if value is not None]
    return (
        sum(line.submitted),
        sum(line.completed),
        sum(line.failed),
        span(max(waits, default=None)),
        span(max(runs, default=None)),
    )
