"""A producer process of a run: ``python -m holdfast.torture._producer``.

It records each response after it receives it. After a kill, a new process continues where
the file ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from holdfast.errors import StoreUnavailableError
from holdfast.model.job import State
from holdfast.model.results import SubmissionResult, SubmissionStatus
from holdfast.operations.batcher import with_retries
from holdfast.runtime.randomness import Randomness
from holdfast.torture._tasks import app, plan
from holdfast.torture.ledger import ACCEPTED, CANCEL, DUPLICATE, RESPONSES, Ledger, allowed
from holdfast.torture.plan import ORDERED_QUEUE
from holdfast.torture.processes import exit_with_parent

BATCH = max(100, min(200, plan.jobs // 100))
KEYS = 10
SIDE_TASKS = 3
"""Tasks that do something else while plain jobs are submitted."""

START_TIMEOUT = timedelta(minutes=2)
"""How long a new process waits for an unavailable store."""

Action = Callable[[], Awaitable[None]]


class Producer:
    """Submits jobs of every kind, with and without keys, and cancels some of them."""

    def __init__(self) -> None:
        self._ledger = Ledger(plan.folder, RESPONSES, plan.name)
        self._randomness = Randomness(plan.seed)
        self._accepted = sum(
            line.startswith(ACCEPTED) for line in self._ledger.path.read_text("utf-8").splitlines()
        )
        self._turns = asyncio.Semaphore(0)
        self._ordered_lock = asyncio.Lock()
        self._key = self._accepted // 100

    async def run(self) -> None:
        """Submit until this producer has reached its share."""
        await with_retries(app.start, self._randomness, START_TIMEOUT)
        async with asyncio.TaskGroup() as group:
            for _ in range(SIDE_TASKS):
                group.create_task(self._do_side_tasks())
            while self._accepted < plan.jobs:
                await self._wait_for_room()
                await self._do(self._plain)
                self._turns.release()
            for _ in range(SIDE_TASKS):
                self._turns.release()
        await app.close()

    async def _do_side_tasks(self) -> None:
        """Do something else for each plain batch."""
        actions: Sequence[Action] = (
            *(self._keyed, self._dependent, self._fan, self._cancelled, self._interrupted),
            *(self._failing, self._delayed, self._ordered),
        )
        while True:
            await self._turns.acquire()
            if self._accepted >= plan.jobs:
                return
            await self._do(actions[int(self._randomness.fraction() * len(actions))])

    async def _do(self, action: Action) -> None:
        try:
            await action()
        except StoreUnavailableError:
            self._ledger.write("unavailable")

    async def _wait_for_room(self) -> None:
        while self._accepted > allowed(plan.folder) * plan.jobs:  # noqa: ASYNC110  # a file changes
            await asyncio.sleep(0.02)
        with contextlib.suppress(StoreUnavailableError):
            while await self._waiting() > plan.backlog:  # noqa: ASYNC110  # the store changes
                await asyncio.sleep(0.05)

    async def _waiting(self) -> int:
        counts = [queue.counts for queue in await app.queues()]
        return sum(count.get(State.SCHEDULED, 0) for count in counts)

    async def _plain(self) -> None:
        """Submit mostly quick jobs, and some that run for a moment."""
        quick = [{"type": "work", "payload": {}} for _ in range(BATCH)]
        nap = {"type": "nap", "payload": {"seconds": 0.1 * self._randomness.fraction()}}
        await self._submit([nap if number % 20 == 0 else job for number, job in enumerate(quick)])

    async def _keyed(self) -> None:
        """Submit jobs with keys that the other producer also uses."""
        self._key += 1
        names = [f"{self._key}-{number}" for number in range(KEYS)]
        batch = [{"type": "work", "payload": {}, "idempotency_key": name} for name in names]
        await self._submit(batch, atomic=False)
        await self._submit(batch[:3], atomic=False)

    async def _dependent(self) -> None:
        kinds = ("AFTER", "CHAIN", "AFTER_ANY", "AFTER", "FAN_IN")
        first = {"type": "nap", "payload": {"seconds": 0.01}, "ref": "r0"}
        rest = [
            {
                "type": "work",
                "payload": {},
                "ref": f"r{number}",
                "depends_on": [f"r{number - 1}"],
                "dependency_type": kind,
            }
            for number, kind in enumerate(kinds, 1)
        ]
        await self._submit([first, *rest])

    async def _fan(self) -> None:
        """Submit a job with children, one that waits for them, and one that inherits a failure."""
        children = 1 + int(self._randomness.fraction() * 4)
        (first, *_) = await self._submit(
            [
                {"type": "spread", "payload": {"children": children}, "ref": "a"},
                _after("a", dependency_type="FAN_IN"),
                {"type": "failing", "payload": {}, "ref": "b"},
                _after("b", dependency_type="CHAIN"),
            ]
        )
        await self._submit([_after(first.job_id, dependency_type="FAN_IN")])

    async def _cancelled(self) -> None:
        later = [{"type": "work", "payload": {}, "delay": 5} for _ in range(10)]
        waiting = await self._submit(later)
        child = await self._submit([_after(waiting[0].job_id)])
        await self._cancel([*waiting, *child])

    async def _interrupted(self) -> None:
        """Cancel jobs that run, are being claimed, or are done."""
        naps = [{"type": "nap", "payload": {"seconds": 0.4}} for _ in range(4)]
        quick = [{"type": "work", "payload": {}} for _ in range(4)]
        submitted = await self._submit([*naps, *quick])
        await asyncio.sleep(self._randomness.fraction() * 0.3)
        await self._cancel(submitted, force=self._randomness.fraction() < 0.5)

    async def _failing(self) -> None:
        types = [*["flaky"] * 6, "failing", "exhausted"]
        await self._submit({"type": type_, "payload": {}} for type_ in types)

    async def _delayed(self) -> None:
        await self._submit(
            {
                "type": "work",
                "payload": {},
                "delay": self._randomness.fraction(),
                "priority": int(self._randomness.fraction() * 5),
            }
            for _ in range(20)
        )

    async def _ordered(self) -> None:
        """Submit to the ordered queue, one batch after the other, from one producer only."""
        if ORDERED_QUEUE in plan.queues:
            async with self._ordered_lock:
                batch = [{"type": "work", "payload": {}, "queue": ORDERED_QUEUE} for _ in range(20)]
                await self._submit(batch)

    async def _submit(
        self, jobs: Iterable[dict[str, Any]], *, atomic: bool = True
    ) -> list[SubmissionResult]:
        batch = await app.submit_batch(list(jobs), atomic=atomic)
        kinds = {SubmissionStatus.DUPLICATE: DUPLICATE}
        self._ledger.write(
            *(f"{kinds.get(one.status, ACCEPTED)} {one.job_id}" for one in batch.results)
        )
        self._accepted += sum(one.status not in kinds for one in batch.results)
        return list(batch.results)

    async def _cancel(self, jobs: Sequence[SubmissionResult], *, force: bool = False) -> None:
        for job in jobs:
            result = await app.cancel(job.job_id, force=force, reason="as planned")
            self._ledger.write(f"{CANCEL} {job.job_id} {result.status}")


def _after(parent: str, **options: str) -> dict[str, Any]:
    return {"type": "work", "payload": {}, "depends_on": [parent], **options}


if __name__ == "__main__":
    exit_with_parent()
    asyncio.run(Producer().run())
