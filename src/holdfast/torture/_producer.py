"""A producer process of a run: ``python -m holdfast.torture._producer``.

It writes down what it was told after it was told. Killed and started again it goes on where
its file ends.
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
from holdfast.operations.submitter import with_retries
from holdfast.runtime.randomness import Randomness
from holdfast.torture._tasks import app, post
from holdfast.torture.ledger import ACCEPTED, CANCEL, DUPLICATE, Ledger, allowed
from holdfast.torture.plan import LINE
from holdfast.torture.processes import die_with_parent

BATCH = max(100, min(200, post.jobs // 100))
KEYS = 10
HANDS = 3
"""Other things that are done at the same time."""

PATIENCE = timedelta(minutes=2)
"""How long a new process waits for a store that is away."""

Deed = Callable[[], Awaitable[None]]


class Producer:
    """Submits jobs of every kind, with and without keys, and cancels some."""

    def __init__(self) -> None:
        self._ledger = Ledger(post.folder, "told", post.name)
        self._randomness = Randomness(post.seed)
        self._accepted = sum(
            line.startswith(ACCEPTED) for line in self._ledger.path.read_text("utf-8").splitlines()
        )
        self._tickets = asyncio.Semaphore(0)
        self._line = asyncio.Lock()
        self._key = self._accepted // 100

    async def run(self) -> None:
        """Submit until the share of this producer is reached."""
        await with_retries(app.start, self._randomness, PATIENCE)
        async with asyncio.TaskGroup() as group:
            for _ in range(HANDS):
                group.create_task(self._do_other_things())
            while self._accepted < post.jobs:
                await self._wait_for_room()
                await self._do(self._plain)
                self._tickets.release()
            for _ in range(HANDS):
                self._tickets.release()
        await app.close()

    async def _do_other_things(self) -> None:
        """For each plain batch, something else."""
        deeds: Sequence[Deed] = (
            *(self._keyed, self._dependent, self._fan, self._cancelled, self._interrupted),
            *(self._troubled, self._delayed, self._in_line),
        )
        while True:
            await self._tickets.acquire()
            if self._accepted >= post.jobs:
                return
            await self._do(deeds[int(self._randomness.fraction() * len(deeds))])

    async def _do(self, deed: Deed) -> None:
        try:
            await deed()
        except StoreUnavailableError:
            self._ledger.write("gave-up")

    async def _wait_for_room(self) -> None:
        while self._accepted > allowed(post.folder) * post.jobs:  # noqa: ASYNC110  # a file tells
            await asyncio.sleep(0.02)
        with contextlib.suppress(StoreUnavailableError):
            while await self._waiting() > post.backlog:  # noqa: ASYNC110  # the store tells
                await asyncio.sleep(0.05)

    async def _waiting(self) -> int:
        counts = [queue.counts for queue in await app.queues()]
        return sum(count.get(State.SCHEDULED, 0) for count in counts)

    async def _plain(self) -> None:
        """Mostly quick jobs, and always some that a worker has in hand for a moment."""
        quick = [{"type": "work", "payload": {}} for _ in range(BATCH)]
        nap = {"type": "nap", "payload": {"seconds": 0.1 * self._randomness.fraction()}}
        await self._submit([nap if number % 20 == 0 else job for number, job in enumerate(quick)])

    async def _keyed(self) -> None:
        """The other producers use the same keys."""
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
        """A job, what it spawns, one that waits for all of it, one that shares a failure."""
        children = 1 + int(self._randomness.fraction() * 4)
        (first, *_) = await self._submit(
            [
                {"type": "spread", "payload": {"children": children}, "ref": "a"},
                _after("a", dependency_type="FAN_IN"),
                {"type": "hopeless", "payload": {}, "ref": "b"},
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
        """Cancel jobs that run, or are just being taken, or are done."""
        naps = [{"type": "nap", "payload": {"seconds": 0.4}} for _ in range(4)]
        quick = [{"type": "work", "payload": {}} for _ in range(4)]
        submitted = await self._submit([*naps, *quick])
        await asyncio.sleep(self._randomness.fraction() * 0.3)
        await self._cancel(submitted, force=self._randomness.fraction() < 0.5)

    async def _troubled(self) -> None:
        types = [*["flaky"] * 6, "hopeless", "doomed"]
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

    async def _in_line(self) -> None:
        """The order of a line can be judged if only one fills it, one after the other."""
        if LINE in post.queues:
            async with self._line:
                batch = [{"type": "work", "payload": {}, "queue": LINE} for _ in range(20)]
                await self._submit(batch)

    async def _submit(
        self, jobs: Iterable[dict[str, Any]], *, atomic: bool = True
    ) -> list[SubmissionResult]:
        batch = await app.submit_batch(list(jobs), atomic=atomic)
        words = {SubmissionStatus.DUPLICATE: DUPLICATE}
        self._ledger.write(
            *(f"{words.get(one.status, ACCEPTED)} {one.job_id}" for one in batch.results)
        )
        self._accepted += sum(one.status not in words for one in batch.results)
        return list(batch.results)

    async def _cancel(self, jobs: Sequence[SubmissionResult], *, force: bool = False) -> None:
        for job in jobs:
            answer = await app.cancel(job.job_id, force=force, reason="as asked")
            self._ledger.write(f"{CANCEL} {job.job_id} {answer.status}")


def _after(parent: str, **options: str) -> dict[str, Any]:
    return {"type": "work", "payload": {}, "depends_on": [parent], **options}


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(Producer().run())
