"""The scenes of the demonstration, and what each must show."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.demo import tasks
from holdfast.cli.demo.screen import Screen
from holdfast.cli.tables import table
from holdfast.model.job import LIVE, Event, State
from holdfast.model.results import SubmissionResult
from holdfast.model.status import JobStatus
from holdfast.verify import Witness, verify

MANY = 30


class Shown(msgspec.Struct, frozen=True):
    """One thing the demonstration shows, and whether it happened."""

    what: str
    happened: bool
    how: str


class Scenes:
    """Plays the scenes one after another."""

    def __init__(self, app: Holdfast, screen: Screen) -> None:
        self._app = app
        self._screen = screen
        self._submitted: list[str] = []
        self.shown: list[Shown] = []

    async def play(self) -> None:
        """Play every scene."""
        await self._several_kinds()
        await self._retry()
        await self._dead_letter()
        await self._fan_in()
        await self._busy_processor()
        await self._kill()
        await self._runaway()

    async def _several_kinds(self) -> None:
        self._screen.headline(f"{MANY + 2} jobs of three kinds: coroutines, threads, one delayed")
        self._screen.quiet.add("email.send")
        emails = [tasks.send_email.submission(f"user{n}@example.org") for n in range(MANY)]
        batch = self._new(*(await self._app.submit_batch(emails)).results)
        images = self._new(
            await tasks.resize_image.using(priority="HIGH").submit(640),
            await tasks.resize_image.using(delay=0.5).submit(320),
        )
        states = [job.state for job in await self._ended(*batch, *images)]
        self._screen.say("email.send", f"{states.count(State.COMPLETED) - 2} completed")
        self._note("jobs of several kinds completed", set(states) == {State.COMPLETED}, "")

    async def _retry(self) -> None:
        self._screen.headline("A job that fails, is retried and succeeds")
        (job_id,) = self._new(await tasks.book_payment.submit(99))
        (job,) = await self._ended(job_id)
        detail = f"{job.output} in attempt {job.attempt}"
        self._note("a retry succeeded", job.state is State.COMPLETED and job.attempt == 2, detail)

    async def _dead_letter(self) -> None:
        self._screen.headline(
            "A job that never succeeds ends as a dead letter, with every attempt on record"
        )
        (job_id,) = self._new(await tasks.print_invoice.submit())
        await self._ended(job_id)
        details = await self._app.failure(job_id)
        for one in details.attempts:
            why = one.failure.message if one.failure else "?"
            self._screen.say("invoice.print", f"attempt {one.attempt}: {why}")
        dead = details.final_state is State.DEAD_LETTER and len(details.attempts) == 2
        self._note("a job out of attempts became a dead letter", dead, "after 2 attempts")

    async def _fan_in(self) -> None:
        self._screen.headline("A chain: split, three squares side by side, and their sum")
        chain = await self._app.chain(
            tasks.split_numbers.submission(3),
            [tasks.square_number.submission(index) for index in range(3)],
            tasks.sum_numbers.submission(),
        )
        *_, last = await self._ended(*self._new(*chain))
        total = last.output
        self._screen.say("numbers.sum", f"1 + 4 + 9 = {total}")
        self._note("a chain fanned out and in", total == 14, f"result {total}")

    async def _busy_processor(self) -> None:
        self._screen.headline("A CPU-bound job in a process of its own, with live progress")
        (job_id,) = self._new(await tasks.count_primes.submit(250_000))
        (job,) = await self._ended(job_id)
        counted = job.output == 22_044 and job.progress is not None
        self._note("a CPU-bound job reported progress", counted, f"{job.output} primes")

    async def _kill(self) -> None:
        self._screen.headline("kill -9 for a worker process in the middle of a job")
        (job_id,) = self._new(await tasks.import_archive.submit())
        await self._screen.running(job_id)
        await asyncio.sleep(0.5)
        job = await self._app.get(job_id)
        pids = {worker.id: worker.pid for worker in await self._app.workers()}
        pid = pids.get(job.worker_id or "")
        if pid is None:
            self._note("a killed worker's job was recovered", False, "its worker is unknown")
            return
        os.kill(pid, signal.SIGKILL)
        self._screen.say("kill -9", f"worker process {pid} is gone")
        (job,) = await self._ended(job_id)
        output = job.output if isinstance(job.output, dict) else {}
        resumed = output.get("resumed_at", 0)
        good = job.state is State.COMPLETED and job.attempt == 2 and resumed > 0
        detail = f"attempt 2 resumed at step {resumed} of {output.get('steps')}"
        self._screen.say("archive.import", detail)
        self._note("a killed worker's job was recovered", good, detail)

    async def _runaway(self) -> None:
        self._screen.headline("A runaway loop is cancelled and stops")
        (job_id,) = self._new(await tasks.loop_forever.submit())
        await self._screen.running(job_id)
        await asyncio.sleep(0.3)
        requested = time.monotonic()
        await self._app.cancel(job_id, force=True, reason="runaway loop")
        (job,) = await self._ended(job_id)
        took = time.monotonic() - requested
        stopped = job.state is State.CANCELLED
        self._note("a runaway loop was stopped", stopped, f"{took:.1f} s after the cancel")

    async def summary(self) -> bool:
        """Show what happened, prove that no job was lost, and return whether all of it held."""
        self._screen.headline("Summary")
        verdict = await check(self._app, self._submitted)
        table(("STATE", "JOBS"), sorted(verdict.states.items()))
        total = sum(verdict.states.values())
        click.echo(f"{len(self._submitted)} submitted, {total} ended, {verdict.attempts} attempts")
        lost = "; ".join(verdict.problems) or "every history is complete, no lease overlapped"
        self._note("no job was lost", not verdict.problems, lost)
        click.echo()
        for one in self.shown:
            mark = (
                click.style("ok  ", fg="green") if one.happened else click.style("FAIL", fg="red")
            )
            click.echo(f"{mark}  {one.what}" + (f" ({one.how})" if one.how else ""))
        return all(one.happened for one in self.shown)

    def _new(self, *results: SubmissionResult) -> list[str]:
        self._submitted += [result.job_id for result in results]
        return [result.job_id for result in results]

    async def _ended(self, *job_ids: str) -> list[JobStatus]:
        for job_id in job_ids:
            await self._screen.ended(job_id)
        return [await self._app.get(job_id) for job_id in job_ids]

    def _note(self, what: str, happened: bool, how: str) -> None:
        self.shown.append(Shown(what, happened, how))


class DemoVerdict(msgspec.Struct, frozen=True):
    """What the histories show."""

    states: Mapping[str, int]
    attempts: int
    problems: list[str]


async def check(app: Holdfast, submitted: Sequence[str]) -> DemoVerdict:
    """Check every job against its history; report jobs that are lost or unfinished."""
    witness = Witness()
    witness.accepted = set(submitted)
    report = await verify(app.store, witness)
    unfinished = [f"{count} are still {s}" for s, count in report.states.items() if s in LIVE]
    problems = [str(finding) for finding in report.findings] + unfinished
    return DemoVerdict(report.states, report.events.get(Event.CLAIM, 0), problems)
