"""Bugs in workers and maintenance: most show only after a fault, in the simulation."""

from __future__ import annotations

from tests.mutants.mutant import Mutant


def _in(
    file: str, old: str, new: str, why: str, layers: tuple[str, ...] = ("simulation",)
) -> Mutant:
    return Mutant(file, old, new, why, layers)


MUTANTS = (
    _in(
        "worker/settler.py",
        "not lifecycle.may_answer(job, run.fence.token)",
        "job.state is not State.RUNNING",
        "a stale outcome is written under another's lease",
    ),
    _in(
        "worker/settler.py",
        "job is not run.job and not lifecycle.may_answer(job, run.fence.token)",
        "job is not run.job",
        "a late outcome is dropped although its lease is the newest",
    ),
    _in(
        "worker/settler.py",
        "                self._outage.failed(error)\n",
        "                return\n",
        "outcomes are dropped while the store is unavailable",
    ),
    _in(
        "worker/settler.py",
        "        job = lifecycle.held_again(job, now=now)\n",
        "",
        "a late outcome is decided on a job that does not run",
    ),
    _in(
        "worker/heartbeat.py",
        " and now < run.deadline + DEADLINE_MARGIN",
        "",
        "a hung worker's lease is renewed for ever",
    ),
    _in(
        "worker/heartbeat.py",
        'self._observer.emit("heartbeat.missed", error=str(error), leases=len(due))',
        "raise",
        "the heartbeat ends when a renewal fails",
    ),
    _in(
        "worker/settler.py",
        "            self._on_written()\n",
        "            pass\n",
        "a worker that waits for its outcomes to be written is not woken",
    ),
    _in(
        "worker/worker.py",
        "                await self._outage.pause(delay.next(), unless=self._stopping)\n",
        "                return\n",
        "a worker stops when the store is unavailable",
    ),
    _in(
        "maintenance/reaper.py",
        "return Change(job, lost, until)",
        "return Change(job, lost)",
        "a lease that was renewed meanwhile is reaped",
        ("maintenance",),
    ),
    _in(
        "maintenance/reaper.py",
        "[change for job in jobs if (change := await self._decided(job, together))]",
        "[c for j in jobs if j.progress and (c := await self._decided(j, together))]",
        "a claim whose reply was lost is never reaped",
    ),
    _in(
        "maintenance/leader.py",
        "                await asyncio.sleep(await errors.failed(error))\n"
        "                continue\n",
        "                return\n",
        "maintenance ends when the store is unavailable",
        ("maintenance",),
    ),
    _in(
        "maintenance/leader.py",
        "            self._steady_at = now + (BACKOFF_SETTLING if self._failed else SETTLING)\n",
        "            self._steady_at = now\n",
        "the reaper runs first after an outage",
        ("maintenance",),
    ),
    _in(
        "maintenance/leader.py",
        "<= now <= self._answered + SILENCE",
        "<= now",
        "the reaper recovers what no worker can renew",
        ("maintenance",),
    ),
    _in(
        "maintenance/releaser.py",
        "        await release_dependents(self._store)\n",
        "",
        "no sweep finds dependents",
    ),
    _in(
        "maintenance/cron.py",
        "await self._store.lock(first_name(schedule), owner, FOR_EVER, _encoded(now))",
        "await self._record_last(schedule, now)",
        "the last record of a schedule counts as the first",
        ("maintenance",),
    ),
    _in(
        "maintenance/cron.py",
        "schedule.entry, idempotency_key=key, idempotency_window=window",
        "schedule.entry",
        "every leader submits a schedule's job",
        ("maintenance",),
    ),
    _in(
        "model/lifecycle.py",
        "        attempt=job.attempt - 1,\n",
        "",
        "returning a job to the queue uses up an attempt",
    ),
    _in(
        "model/lifecycle.py",
        "    if job.cancel is not None or failure.category is FailureCategory.CANCELLED:",
        "    if failure.category is FailureCategory.CANCELLED:",
        "a job with a request to cancel is retried",
    ),
    _in(
        "model/lifecycle.py",
        "    if job.state is R and job.cancel is not None:",
        "    if job.state is not R and job.cancel is not None:",
        "a job with a request to cancel returns to the queue",
    ),
    _in(
        "operations/changes.py",
        "            if not answer.written:\n",
        "            if answer is None:\n",
        "cancelling is confirmed without being written",
    ),
    _in(
        "operations/submitter.py",
        "        spawner = Spawner(fence.job_id, key or self._randomness.token(), extra)\n",
        "        spawner = Spawner(fence.job_id, self._randomness.token(), extra)\n",
        "a second attempt spawns a second child",
    ),
)
