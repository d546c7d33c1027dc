"""``holdfast verify``: judge every job in a store by its audit records."""

from __future__ import annotations

import click

from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import FAILED
from holdfast.cli.tables import facts
from holdfast.observe.logging import plain
from holdfast.verify import Report
from holdfast.verify import verify as verified


@click.command()
@click.argument("place", metavar="[URL]", required=False)
@store_options
def verify(place: str | None, url: str | None, as_json: bool) -> None:
    """Judge every job by its audit records: was a promise ever broken?

    Reads only, and in small steps; workers may go on meanwhile. Exits with 1 when something
    was found.
    """
    report = on_store(place or url, lambda app: verified(app.store))
    answer(report, as_json=as_json, show=lambda: show(report))
    if not report.sound:
        raise click.exceptions.Exit(FAILED)


def show(report: Report) -> None:
    """Show a person what was found."""
    facts([("jobs", report.jobs), *((state, count) for state, count in report.states.items())])
    if report.moving:
        click.echo(f"{report.moving} moved on faster than they could be read")
    click.echo()
    for kind, count in report.counts.items():
        mark = click.style("FAIL", fg="red") if count else click.style("ok  ", fg="green")
        click.echo(f"{mark}  {kind}" + (f": {count}" if count else ""))
    for finding in report.findings:
        click.echo(plain(finding, 500))
    click.echo("\nno promise was broken" if report.sound else "\npromises were broken, see above")
