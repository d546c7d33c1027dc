"""``holdfast torture``: kills real workers on your store and checks that every promise held."""

from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess

import click
import msgspec

from holdfast import config
from holdfast.cli.common import answer, store_options
from holdfast.cli.errors import FAILED, CommandError
from holdfast.cli.tables import facts
from holdfast.observe.logging import plain
from holdfast.torture.faults import Crash
from holdfast.torture.plan import TorturePlan
from holdfast.torture.report import Outcome
from holdfast.torture.run import torture as tortured

NUMBER = click.IntRange(min=0)


@click.command()
@click.option(
    "--jobs", default=20_000, type=click.IntRange(min=100), help="The number of jobs to submit."
)
@click.option("--kills", default=50, type=NUMBER, help="The number of workers to kill (kill -9).")
@click.option(
    "--pauses",
    default=20,
    type=NUMBER,
    help="The number of workers to freeze for longer than a lease.",
)
@click.option("--cuts", default=20, type=NUMBER, help="The number of server connections to cut.")
@click.option("--server-crashes", default=0, type=NUMBER, help="The number of server crashes.")
@click.option(
    "--on-crash", metavar="COMMAND", help="The command that crashes and restarts the server."
)
@click.option("--lease", default=3.0, type=click.FloatRange(min=1), help="The lease in seconds.")
@click.option("--seed", default=0, type=int, help="The seed of the fault plan.")
@click.option("--keep", is_flag=True, help="Keep the jobs for inspection.")
@store_options
def torture(  # one argument per option
    url: str | None,
    as_json: bool,
    on_crash: str | None,
    server_crashes: int,
    keep: bool,
    **numbers: float,
) -> None:
    """Kill workers under load, then prove that no job was lost or run twice at once.

    Real worker processes, with and without a supervisor, and producers with keys,
    dependencies, cancellations and a schedule use a place of their own in your store: a file
    beside yours, a schema, a prefix. The command removes it afterwards. Exits with 1 when a
    promise was broken, or when a fault that must occur did not.
    """
    if server_crashes and not on_crash:
        raise click.UsageError("--server-crashes needs --on-crash COMMAND")
    place = config.load(flags={"url": url}).text("url")
    plan = msgspec.convert({**numbers, "crashes": server_crashes}, TorturePlan)
    crash = _crasher(on_crash) if on_crash else None
    signal.signal(signal.SIGTERM, interrupt)
    outcome = asyncio.run(tortured(place, plan, crash=crash, progress=_report, keep=keep))
    document = {**msgspec.to_builtins(outcome), "problems": outcome.problems}
    answer(document, as_json=as_json, show=lambda: show(outcome))
    if outcome.problems:
        raise click.exceptions.Exit(FAILED)


def interrupt(number: int, frame: object) -> None:
    """End a run on SIGTERM as Ctrl-C does, also where SIGINT is ignored: in the background."""
    del number, frame
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def show(outcome: Outcome) -> None:
    """Show the outcome of a run."""
    rate = outcome.jobs / outcome.seconds if outcome.seconds else 0
    share = outcome.repeated / outcome.effects if outcome.effects else 0
    click.echo(f"{outcome.jobs} jobs in {outcome.seconds:g} s ({rate:.0f}/s)\n")
    click.secho("must be 0", bold=True)
    facts([(name, str(count)) for name, count in outcome.violations.items()])
    click.secho("\nmust have happened", bold=True)
    facts([(name, str(count)) for name, count in outcome.happened.items()])
    click.echo(f"\nwith leases of {outcome.plan.lease:g} s, a dead worker's jobs were")
    for what, took in (("ready again", outcome.ready), ("claimed again", outcome.recovery)):
        times = f"p50 {took.p50:.2f} s, p99 {took.p99:.2f} s, longest {took.longest:.2f} s"
        click.echo(f"{what:13}  {times}")
    click.echo(f"effects {outcome.effects}, repeated {outcome.repeated} ({share:.2%}), explained")
    for finding in outcome.findings:
        click.echo(plain(finding, 500))
    for problem in outcome.problems:
        click.secho(f"PROBLEM  {problem}", fg="red")
    click.echo("" if outcome.problems else "\nevery promise held")


def _report(line: str) -> None:
    click.echo(f"holdfast: {line}", err=True)


def _crasher(command: str) -> Crash:
    words = shlex.split(command)

    async def crash() -> None:
        done = await asyncio.to_thread(subprocess.run, words, check=False)  # the user's own command
        if done.returncode:
            raise CommandError(f"{command!r} failed with {done.returncode}")

    return crash
