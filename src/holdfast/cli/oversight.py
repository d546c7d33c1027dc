"""Commands that show all jobs at once: failures by group, and measures over time."""

from __future__ import annotations

import click

from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.submit import span_or_text
from holdfast.cli.tables import moment, span, table
from holdfast.model.failure_groups import FailureGroups

BARS = " ▁▂▃▄▅▆▇█"


@click.command("failure-groups")
@click.option("--time-range", metavar="SPAN", default="3600", help="The time window.  [1 h]")
@store_options
def failure_groups(time_range: str, url: str | None, as_json: bool) -> None:
    """List failures in groups of the same type, code and kind of message.

    List the jobs of a group with: holdfast jobs --group ID
    """
    window = span_or_text(time_range)
    found = on_store(url, lambda app: app.failure_groups(time_range=window))
    answer(found, as_json=as_json, show=lambda: _show_groups(found))


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
