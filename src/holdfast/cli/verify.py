"""``holdfast verify``: checks every job of a store against its audit records."""

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
    """Check every job against its audit records for a broken promise.

    Reads only, in small steps; workers may keep running. Exits with 1 when it finds one.
    """
    report = on_store(place or url, lambda app: verified(app.store))
    answer(report, as_json=as_json, show=lambda: show(report))
    if not report.sound:
        raise click.exceptions.Exit(FAILED)


def show(report: Report) -> None:
    """Show what was found."""
    facts([("jobs", report.jobs), *((state, count) for state, count in report.states.items())])
    if report.moving:
        click.echo(f"{report.moving} changed faster than they could be read")
    click.echo()
    for kind, count in report.counts.items():
        mark = click.style("FAIL", fg="red") if count else click.style("ok  ", fg="green")
        click.echo(f"{mark}  {kind}" + (f": {count}" if count else ""))
    for finding in report.findings:
        click.echo(plain(finding, 500))
    click.echo("\nno promise was broken" if report.sound else "\npromises were broken, see above")
