"""``holdfast doctor``: reports problems and what to do about them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import FAILED
from holdfast.observe.logging import plain
from holdfast.operations.doctor import examine
from holdfast.store import Finding, Level

MARKS = {
    Level.OK: ("ok   ", "green"),
    Level.WARN: ("warn ", "yellow"),
    Level.ERROR: ("ERROR", "red"),
}


@click.command()
@click.option("--app", metavar="MODULE:APP", help="Check against this app's retention and keys.")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too.")
@store_options
def doctor(app: str | None, strict: bool, url: str | None, as_json: bool) -> None:
    """Report problems of the store and its jobs, and what to do about each.

    Checks settings under which jobs can be lost, the schema, clocks, stuck jobs, jobs that no
    worker runs, dead letters and retention. Changes nothing. Exits with 1 on errors.
    """

    async def look(chosen: Holdfast) -> list[Finding]:
        ids = chosen.keys.ids if chosen.keys else ()
        return await examine(chosen.store, retention=chosen.retention, key_ids=ids)

    found = on_store(url, look, app=app)
    answer(found, as_json=as_json, show=lambda: _show(found))
    bad = {Level.ERROR, Level.WARN} if strict else {Level.ERROR}
    if any(finding.level in bad for finding in found):
        raise click.exceptions.Exit(FAILED)


def _show(found: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in found)
    for finding in found:
        mark, colour = MARKS[finding.level]
        name = plain(finding.name).ljust(width)
        click.echo(f"{click.style(mark, fg=colour)}  {name}  {plain(finding.text)}")
        if finding.advice:
            click.echo(f"{' ' * (width + 9)}{plain(finding.advice.replace('`', ''))}")
    levels = [finding.level for finding in found]
    click.echo(f"\n{levels.count(Level.ERROR)} error(s), {levels.count(Level.WARN)} warning(s)")
