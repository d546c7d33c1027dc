"""What racers do, in this process and in others.

``python -m tests.conformance.racers`` is one racer's process: it reads commands as JSON lines,
opens stores on a place, says it is ready, runs on command, and reports what it saw.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.dependencies import verdict
from holdfast.model.job import TERMINAL, Job, State
from holdfast.model.policy import SECOND, Retention
from holdfast.store import Added, Change, Claim, open_store
from tests.conformance.hand import MANY, failure, fence, job_id, make

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.store import Store

    Report = list[list[str]]
    Role = Callable[[Store, int, int], Awaitable[Report]]

STORES_EACH = 2


def _claim(number: int, limit: int, queue: str = "default") -> Claim:
    token = f"{number}-{os.urandom(8).hex()}"
    return Claim(queues=(queue,), limit=limit, worker=f"w{number}", token=token)


async def claim_all(store: Store, number: int, count: int) -> Report:
    """Claim until nothing is left: (id, lease version) of each."""
    found: Report = []
    while taken := await store.claim(_claim(number, 1 + number % 3)):
        found += [[job.id, str(job.lease_version)] for job in taken]
        await asyncio.sleep(0)
    return found


async def submit_keys(store: Store, number: int, count: int) -> Report:
    """Submit one job for each key, as every racer does: (status, job id)."""
    found: Report = []
    for n in range(count):
        made = make(
            f"{number} {n}", now=store.now(), type="a", payload=n, idempotency_key=f"key {n}"
        )
        answer = await _added(store, made)
        found.append([answer.status, answer.job_id])
    return found


async def _added(store: Store, job: Job) -> Added:
    """Add a job; repeat while the store is unavailable, as submitters do when a disk stalls."""
    while True:
        try:
            return (await store.add([job]))[0]
        except StoreUnavailableError:
            continue


async def cancel_each(store: Store, number: int, count: int) -> Report:
    """Cancel every job, as every racer does; the ids of those cancelled here."""
    found: Report = []
    for n in range(count):
        (job,) = await store.get([job_id(f"n{n}")])
        assert job is not None
        if job.state in TERMINAL:
            continue
        decided = lifecycle.cancelled(job, now=store.now(), reason=f"by {number}")
        (answer,) = await store.swap([Change(job, decided)])
        if answer.written:
            found.append([job.id])
    return found


async def promote_all(store: Store, number: int, count: int) -> Report:
    """Promote until nothing is due; how many each time."""
    found: Report = []
    while (promoted := await store.promote(7)).count:
        found.append([str(promoted.count)])
    return found


async def lock_names(store: Store, number: int, count: int) -> Report:
    """Try to lock every name; those that were locked here."""
    names = [f"name {n}" for n in range(count)]
    return [[n] for n in names if await store.lock(n, f"number {number}", 60 * SECOND)]


async def end_or_depend(store: Store, number: int, count: int) -> Report:
    """Half of the racers end parents, the others submit dependents of the same parents."""
    found: Report = []
    for n in range(count):
        (parent,) = await store.get([job_id(f"parent {n}")])
        assert parent is not None
        if number % 2:
            child = make(f"child {n} of {number}", now=store.now(), after=[parent])
            (answer,) = await store.add([child])
            found.append([answer.status, child.id])
        elif parent.state not in TERMINAL:
            decided = lifecycle.cancelled(parent, now=store.now())
            await store.swap([Change(parent, decided)])
    return found


async def prune_or_depend(store: Store, number: int, count: int) -> Report:
    """Half of the racers delete ended parents, the others submit dependents of them."""
    found: Report = []
    for n in range(count):
        parent = job_id(f"parent {n}")
        if number % 2:
            made = make(f"child {n} of {number}", now=store.now(), hold=True)
            (answer,) = await store.add([replace(made, depends_on=(parent,))])
            found.append([answer.status, str(n)])
        elif number % 4:
            await store.prune(Retention(cancelled=SECOND * 0), 1)
        else:
            await store.delete([parent])
    return found


async def spawn_or_fan_in(store: Store, number: int, count: int) -> Report:
    """Half of the racers spawn from a running job, the others wait FAN_IN for it."""
    (spawner,) = await store.get([job_id("spawner")])
    assert spawner is not None
    found: Report = []
    for n in range(count):
        if number % 2:
            made = make(f"spawned {n} by {number}", now=store.now())
            made = replace(made, spawned_by=spawner.id)
            await store.add([made], fence=fence(spawner))
            found.append(["spawned", made.id])
        elif n % 5 == 0:
            made = make(
                f"fan in {n} of {number}",
                now=store.now(),
                after=[spawner],
                dependency_type="FAN_IN",
            )
            await store.add([made])
            found.append(["fan in", made.id])
    return found


async def produce_in_order(store: Store, number: int, count: int) -> Report:
    """All but the first racer submit; the first claims one by one: (producer, number)."""
    if number:
        for n in range(count):
            await store.add([make(f"{number} {n}", now=store.now(), tags={"n": f"{number} {n}"})])
        return []
    found: Report = []
    async with asyncio.timeout(20):
        while len(found) < count:
            taken = await store.claim(_claim(number, 1))
            found += [job.tags["n"].split() for job in taken]
            await asyncio.sleep(0)
    return found


async def submit_one(store: Store, number: int, count: int) -> Report:
    """Submit a single job each."""
    await store.add([make(f"by {number}", now=store.now())])
    return []


class Storm:
    """Claims, settles, abandons, renews, reaps, promotes and decides until every job has ended."""

    def __init__(self, store: Store, number: int) -> None:
        self.store = store
        self.number = number
        self.randomness = random.Random(number)
        self.report: Report = []
        self.past: list[Job] = []

    async def run(self) -> Report:
        deeds = (self._work, self._work, self._work, self._reap, self._promote, self._haunt)
        async with asyncio.timeout(40):
            while not await self._is_over():
                await self.randomness.choice(deeds)()
                await self._judge()
        return self.report

    async def _is_over(self) -> bool:
        tallies = (await self.store.stats(SECOND)).tallies
        return all(tally.state in TERMINAL for tally in tallies)

    async def _work(self) -> None:
        for job in await self.store.claim(_claim(self.number, 3)):
            self.report.append(["claim", job.id, str(job.lease_version)])
            self.past.append(job)
            if self.randomness.random() < 0.3:
                await asyncio.sleep(0.01)  # work that others overtake
                (renewal,) = await self.store.extend([fence(job)])
                self.report.append(["renewed" if renewal.held else "renewal refused"])
            await self._settle(job)

    async def _settle(self, job: Job) -> None:
        now = self.store.now()
        match self.randomness.randrange(6):
            case 0:
                return
            case 1:
                decided = lifecycle.after_failure(job, failure(), now=now)
            case 2:
                decided = lifecycle.given_back(job, now=now)
            case _:
                decided = lifecycle.completed(job, str(self.number).encode(), now=now)
        (answer,) = await self.store.swap([Change(job, decided)])
        self.report.append([f"{decided.state} {'written' if answer.written else 'refused'}"])

    async def _haunt(self) -> None:
        """Answer again for a job that was claimed a while ago."""
        if not self.past:
            return
        job = self.randomness.choice(self.past)
        decided = lifecycle.completed(job, b"zombie", now=self.store.now())
        (answer,) = await self.store.swap([Change(job, decided)])
        kind = "late" if answer.written else "stale"
        self.report.append([kind, job.id, str(job.lease_version)])

    async def _reap(self) -> None:
        now = self.store.now()
        for job in await self.store.overdue(5):
            if job.state is State.RUNNING and job.lease is not None:
                decided = lifecycle.lease_lost(job, now=now, jitter=-1)
                (answer,) = await self.store.swap([Change(job, decided, job.lease.until)])
                self.report.append(["lapse" if answer.written else "lapse refused"])

    async def _promote(self) -> None:
        await self.store.promote(MANY)

    async def _judge(self) -> None:
        now = self.store.now()
        changes = []
        for each in await self.store.dependents(5):
            decision = verdict(each.job.dependency_kind, each.parents)
            changes.append(
                Change(each.job, lifecycle.dependency_ended(each.job, decision, now=now))
            )
        if changes:
            await self.store.swap(changes)


async def storm(store: Store, number: int, count: int) -> Report:
    return await Storm(store, number).run()


ROLES: Mapping[str, Role] = {
    role.__name__: role
    for role in (
        claim_all,
        submit_keys,
        cancel_each,
        promote_all,
        lock_names,
        end_or_depend,
        prune_or_depend,
        spawn_or_fan_in,
        produce_in_order,
        submit_one,
        storm,
    )
}


async def _race(url: str, number: int, role: str, count: int) -> Report:
    """Open this process's stores, wait for the start, and run one racer on each."""
    stores = [await open_store(url).start() for _ in range(STORES_EACH)]
    try:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        numbers = range(number * STORES_EACH, (number + 1) * STORES_EACH)
        racers = [ROLES[role](s, n, count) for s, n in zip(stores, numbers, strict=True)]
        return [line for report in await asyncio.gather(*racers) for line in report]
    finally:
        for store in stores:
            await store.close()


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        report = asyncio.run(_race(**command))
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
