"""``holdfast demo``: a short demonstration, or a company's week to look at in the dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import click

from holdfast.cli.errors import FAILED, CommandError

LONGEST = 60.0
"""The longest time for the whole demonstration on a slow machine, in seconds."""
FEW = 12_000
"""Jobs of the week that ``--serve`` makes when none is filled."""


@click.command()
@click.option(
    "--fill",
    metavar="FILE",
    help="Make a company's week in a new SQLite file: failures, workflows, schedules, limits.",
)
@click.option("--jobs", default=50_000, show_default=True, help="How many jobs the week has.")
@click.option("--serve", is_flag=True, help="Leave a running system with the dashboard behind.")
@click.option("--port", default=8080, show_default=True, help="The port of the dashboard.")
def demo(*, fill: str | None, jobs: int, serve: bool, port: int) -> None:
    """Run a short demonstration on a temporary SQLite file.

    It shows jobs of several kinds, a retry, a dead letter, a chain with fan-in, a CPU-bound job
    with progress, recovery of a killed worker's job and the cancellation of a runaway loop.
    It removes everything afterwards. With --serve it makes the week of a company instead, and
    shows it in the dashboard until it is interrupted; with --fill FILE the week stays.
    """
    if fill is None and not serve:
        _demonstrate()
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        file = Path(fill) if fill else Path(folder) / "demo.db"
        count = jobs if fill else min(jobs, FEW)
        if not (fill and serve and file.exists()):
            _fill(file, count)
        if serve:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(_serve(file, port))


def _demonstrate() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        os.environ["HOLDFAST_URL"] = url
        if not asyncio.run(_play(Path(folder), url)):
            raise click.exceptions.Exit(FAILED)


def _fill(file: Path, jobs: int) -> None:
    if file.exists():
        raise CommandError(f"{file} exists already: give the name of a new file", FAILED)
    if not 100 <= jobs <= 10_000_000:
        raise CommandError(f"--jobs must be from 100 to 10000000, got {jobs}", FAILED)
    asyncio.run(_fill_week(file, jobs))
    click.echo(f"look at it: holdfast demo --fill {file} --serve")


async def _fill_week(file: Path, jobs: int) -> None:
    from holdfast.app import Holdfast
    from holdfast.cli.demo.fill import WEEK, Week
    from holdfast.cli.demo.stage import set_the_scene
    from holdfast.model.policy import Limits
    from holdfast.runtime.clock import ManualClock, SystemClock

    end = SystemClock().now() - timedelta(seconds=5)
    clock = ManualClock(end - WEEK)
    app = Holdfast(_url(file), clock=clock, limits=Limits())
    week = Week(app, clock, jobs=jobs)
    with _progress(jobs) as report:
        async with app:
            await week.fill(end, report)
            await set_the_scene(app, week)


@contextlib.contextmanager
def _progress(jobs: int) -> Iterator[Callable[[int], None]]:
    """Show how many jobs are made: as a bar, or without a terminal as a line for each tenth."""
    label, shown = f"a week of {jobs} jobs", 0
    if not sys.stdout.isatty():
        click.echo(label)

        def lines(made: int) -> None:
            nonlocal shown
            tenth = min(10, made * 10 // jobs)
            if tenth > shown:
                click.echo(f"  {tenth * 10} %")
            shown = tenth

        yield lines
        return
    with click.progressbar(length=jobs, label=label) as bar:

        def report(made: int) -> None:
            nonlocal shown
            bar.update(made - shown)
            shown = made

        yield report


async def _serve(file: Path, port: int) -> None:
    from holdfast.app import Holdfast
    from holdfast.cli.demo.fill import Week
    from holdfast.cli.demo.stage import LiveCompany
    from holdfast.dashboard import Dashboard
    from holdfast.http.server import ListenAddress, beside, maintenance
    from holdfast.observe import Silent
    from holdfast.runtime.clock import ManualClock

    app = Holdfast(_url(file))
    try:
        async with app, beside(app, ListenAddress(port=port), pages=Dashboard) as address:
            click.echo(f"the dashboard is at {address}/ until you press Ctrl-C")
            company = LiveCompany(app, Week(app, ManualClock(), jobs=0))
            async with _working(company), maintenance(app, Silent()):
                await asyncio.Event().wait()
    except OSError as error:
        raise CommandError(f"cannot listen on port {port}: {error}", FAILED) from None


@contextlib.asynccontextmanager
async def _working(company: object) -> AsyncIterator[None]:
    task = asyncio.create_task(company.run())  # type: ignore[attr-defined]  # a LiveCompany
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _url(file: Path) -> str:
    return f"sqlite:///{file.resolve()}"


async def _play(folder: Path, url: str) -> bool:
    from holdfast.cli.demo.scenes import Scenes
    from holdfast.cli.demo.screen import Screen
    from holdfast.cli.demo.tasks import app
    from holdfast.cli.demo.workers import workers

    screen = Screen()
    scenes = Scenes(app, screen)
    click.echo("Two worker processes and one SQLite file, removed afterwards.")
    async with app, workers(folder, url) as log:
        following = asyncio.create_task(screen.follow(app.events(after=None)))
        try:
            async with asyncio.timeout(LONGEST):
                await scenes.play()
        except TimeoutError:
            lines = log.read_text("utf-8", "replace")
            raise CommandError(
                f"not finished within {LONGEST:g} s; the workers logged:\n{lines}", FAILED
            ) from None
        finally:
            following.cancel()
        return await scenes.summary()
