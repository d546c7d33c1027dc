"""Two stores driven in lockstep: every answer and every job must be the same on both."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from holdfast.errors import StaleLeaseError
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, MemoryStore
from tests.conformance.snapshot import differences, service, snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import ExitStack
    from datetime import datetime

    from holdfast.model.job import Job
    from holdfast.store import Store, Swapped

    Verb = Callable[[Store], Awaitable[object]]

QUEUES = ("a", "b")


class Pair(RuleBasedStateMachine):
    """One store and the reference, and the jobs in them."""

    happened: ClassVar[Counter[str]] = Counter()
    open_store: ClassVar[Callable[[ExitStack, ManualClock], Store]]
    runner: ClassVar[asyncio.Runner]
    exit_stack: ClassVar[Callable[[], ExitStack]]

    def __init__(self) -> None:
        super().__init__()
        self.places = type(self).exit_stack()
        self.clock = ManualClock()
        self.reference: Store = MemoryStore(self.clock)
        self.store = type(self).open_store(self.places, self.clock)
        self.run(self.store.start())
        self.jobs: list[Job] = []
        self.instants: list[datetime] = []
        self.labels: dict[str, str] = {}
        self.tokens = 0

    def teardown(self) -> None:
        try:
            expected = self.run(snapshot(self.reference, self.labels))
            actual = self.run(snapshot(self.store, self.labels))
            assert [] == differences(expected, actual, "snapshot")
            expected = self.run(service(self.reference, QUEUES, self.labels))
            actual = self.run(service(self.store, QUEUES, self.labels))
            assert [] == differences(expected, actual, "service")
        finally:
            self.run(self.store.close())
            self.places.close()

    def run(self, verb: Coroutine[object, object, object] | Awaitable[object]) -> object:
        async def wait() -> object:
            return await verb

        return type(self).runner.run(wait())

    def both(self, verb: Verb) -> object:
        """Call both and compare the answers, then all jobs."""
        expected, actual = self.run(self._try(self.reference, verb)), None
        actual = self.run(self._try(self.store, verb))
        assert [] == differences(expected, actual, "answer")
        ids = list(self.labels)
        expected_jobs = self.run(self.reference.get(ids))
        assert [] == differences(expected_jobs, self.run(self.store.get(ids)), "jobs")
        return expected

    async def _try(self, store: Store, verb: Verb) -> object:
        try:
            return await verb(store)
        except StaleLeaseError as error:
            return repr(error)

    def saw(self, what: str, *, when: bool = True) -> None:
        self.happened[what] += when

    def current(self, job: Job) -> Job | None:
        found = self.run(self.reference.get([job.id]))
        assert isinstance(found, list)
        return found[0]

    def stored(self) -> list[Job]:
        found = self.run(self.reference.get(list(self.labels)))
        assert isinstance(found, list)
        return [job for job in found if job is not None]

    def someone(self, n: int) -> Job | None:
        return self.current(self.jobs[n % len(self.jobs)]) if self.jobs else None

    def swap(self, *changes: Change) -> list[Swapped]:
        answer = self.both(lambda store: store.swap(changes))
        assert isinstance(answer, list)
        for change, each in zip(changes, answer, strict=True):
            self.saw("dependents learn of an end", when=each.has_dependents)
            if each.written:
                self.remember(change.after)
        return answer

    def remember(self, job: Job) -> None:
        """Remember the instants at which a job becomes due or overdue."""
        ends = [job.due_at, job.expires_at, job.lease.until if job.lease else None]
        if job.dedupe is not None:
            ends.append(job.dedupe.expires_at)
        self.instants += [end for end in ends if end is not None]
