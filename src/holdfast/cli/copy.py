"""``holdfast copy``: copies all jobs, settings and records to another store."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.common import answer, json_option, opened_as_is
from holdfast.cli.errors import FAILED, CommandError
from holdfast.cli.tables import facts
from holdfast.copying import Copier, CopyReport
from holdfast.observe.logging import plain
from holdfast.observe.redaction import redacted
from holdfast.store import open_store


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy all jobs, settings and records from one store to another, empty one.

    Stop workers and producers first. The command pauses the queues of the source and leaves
    them paused; it deletes nothing. The same command resumes an interrupted copy and does not
    repeat a finished one. Encrypted jobs are copied as they are; no key is needed.
    """
    report = asyncio.run(_copied(source, target, quiet=as_json))
    answer(report, as_json=as_json, show=lambda: _show(report))
    if not report.ok:
        raise CommandError("the stores differ: the copy is incomplete, see above", FAILED)


async def _copied(source: str, target: str, *, quiet: bool) -> CopyReport:
    here, there = open_store(opened_as_is(source, "FROM")), open_store(target)
    names = (redacted(source), redacted(target))
    try:
        await here.start()
        await there.start()
        progress = None if quiet else _report
        return await Copier(here, there, names=names, progress=progress).run()
    finally:
        await there.close()
        await here.close()


def _report(what: str, count: int) -> None:
    click.echo(f"{count} jobs {what}", err=True)


def _show(report: CopyReport) -> None:
    facts(
        [
            ("jobs", report.jobs),
            ("resumed", "yes" if report.resumed else None),
            ("queues", report.queues),
            ("limits", report.limits),
            ("schedules", report.schedules),
            ("records", report.records),
            ("keys of deleted jobs", report.keys or None),
        ]
    )
    for line in report.differences:
        click.echo(f"  {plain(line)}")
    if report.ok:
        click.echo("both stores are equal; the queues of the source stay paused")
