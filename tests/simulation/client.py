"""Clients of a simulation: they submit, cancel, retry and wait, and record the answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.errors import DuplicateError, NotFoundError, StoreUnavailableError, ValidationError
from holdfast.model.results import SubmissionStatus

if TYPE_CHECKING:
    import random

    from holdfast.app import Holdfast
    from holdfast.model.results import SubmissionResult
    from tests.simulation.record import Record

KINDS = ("AFTER", "AFTER", "CHAIN", "AFTER_ANY", "FAN_IN")
KEYS = 6


class Client:
    """One client process; what it knows outlives it in ``known``."""

    def __init__(
        self, process: str, app: Holdfast, record: Record, draw: random.Random, known: list[str]
    ) -> None:
        self._process = process
        self._app = app
        self._record = record
        self._draw = draw
        self._known = known

    async def run(self, operations: int, think: float) -> None:
        """Do so many operations, one after another."""
        async with self._app:
            for _ in range(operations):
                await asyncio.sleep(self._draw.expovariate(1 / think))
                await self._do_something()

    async def _do_something(self) -> None:
        deeds = [
            *(self._submit, self._submit, self._submit, self._submit_keyed, self._submit_keyed),
            *(self._submit_dependent, self._submit_dependent, self._submit_batch, self._submit_fan),
            *(self._cancel, self._cancel_soon, self._cancel_soon, self._retry, self._retry),
            *(self._submit_held, self._wait),
        ]
        deed = self._draw.choice(deeds)
        try:
            await deed()
        except StoreUnavailableError:
            self._record.happened("client gave up")
        except (ValidationError, NotFoundError, TimeoutError) as error:
            self._record.note(self._process, f"{deed.__name__}: {type(error).__name__}")

    async def _submit(self) -> None:
        options: dict[str, Any] = {}
        if self._draw.random() < 0.3:
            options["delay"] = self._draw.uniform(0.1, 10)
        if self._draw.random() < 0.3:
            options["priority"] = self._draw.randint(0, 4)
        type_ = "rare" if self._draw.random() < 0.15 else "work"
        self._heard(await self._app.submit(type_, {"steps": self._steps()}, **options))

    async def _submit_keyed(self) -> None:
        number = self._draw.randrange(KEYS)
        payload = {"steps": [["sleep", 0.1 * number], ["effect"]]}
        try:
            answer = await self._app.submit("work", payload, idempotency_key=f"key-{number}")
        except DuplicateError:
            self._record.happened("conflict that cannot be")
        else:
            self._heard(answer)

    async def _submit_dependent(self) -> None:
        if self._known:
            parents = self._draw.sample(
                self._known, min(len(self._known), self._draw.randint(1, 3))
            )
            kind = self._draw.choice(KINDS)
            answer = await self._app.submit(
                "work", {"steps": self._steps()}, depends_on=parents, dependency_type=kind
            )
            self._heard(answer)

    async def _submit_batch(self) -> None:
        size = self._draw.randint(2, 4)
        jobs: list[dict[str, object]] = [
            {
                "type": "work",
                "payload": {"steps": self._steps()},
                "ref": f"r{i}",
                "depends_on": [f"r{i - 1}"] if i else [],
            }
            for i in range(size)
        ]
        batch = await self._app.submit_batch(jobs, atomic=self._draw.random() < 0.5)
        for answer in batch.results:
            self._heard(answer)

    async def _submit_fan(self) -> None:
        children = [["spawn", f"c{i}", [["sleep", 0.3], ["effect"]]] for i in range(3)]
        steps = [["sleep", 0.2], *children, ["fail", self._draw.choice([0, 0, 1])], ["effect"]]
        first = await self._app.submit("work", {"steps": steps})
        self._heard(first)
        options: dict[str, Any] = {"depends_on": [first.job_id], "dependency_type": "FAN_IN"}
        self._heard(await self._app.submit("work", {"steps": [["effect"]]}, **options))
        self._record.happened("fan-in submitted")

    async def _submit_held(self) -> None:
        held = await self._app.submit("work", {"steps": self._steps()}, hold=True)
        self._heard(held)
        if self._draw.random() < 0.5:
            await asyncio.sleep(self._draw.random() * 5)
            await self._app.release(held.job_id)

    async def _cancel_soon(self) -> None:
        """Cancel a job while it is being claimed."""
        answer = await self._app.submit("work", {"steps": self._steps()})
        self._heard(answer)
        await asyncio.sleep(self._draw.random() * 0.1)
        await self._cancel(answer.job_id)

    async def _cancel(self, job_id: str = "") -> None:
        if self._known:
            job_id, force = job_id or self._draw.choice(self._known), self._draw.random() < 0.5
            answer = await self._app.cancel(job_id, force=force, reason="a client wants it")
            self._record.cancels.append((self._record.time(), job_id, answer.status))
            self._record.happened(f"cancel {answer.status}")
            self._record.note(self._process, f"cancel {job_id} -> {answer.status}")

    async def _retry(self) -> None:
        if self._known:
            job_id = self._draw.choice(self._known)
            answer = await self._app.retry(job_id, reset_attempts=self._draw.random() < 0.5)
            self._record.happened(f"retry {answer.status}")
            self._record.note(self._process, f"retry {job_id} -> {answer.status}")

    async def _wait(self) -> None:
        if self._known:
            job_id = self._draw.choice(self._known)
            status = await self._app.wait(job_id, timeout=self._draw.uniform(1, 20))
            self._record.happened("wait answered")
            self._record.note(self._process, f"wait {job_id} -> {status.state}")

    def _heard(self, answer: SubmissionResult) -> None:
        if answer.status is SubmissionStatus.REJECTED:
            return
        self._record.accepted[answer.job_id] = self._process
        self._record.happened(f"submission {answer.status}")
        if answer.job_id not in self._known:
            self._known.append(answer.job_id)

    def _steps(self) -> list[list[Any]]:
        """What a job will do: mostly ordinary things, sometimes a fault."""
        draw = self._draw
        ordinary: list[list[Any]] = [
            ["sleep", round(draw.uniform(0.01, 2), 2)],
            ["checkpoint"],
            ["progress", draw.randrange(100)],
            ["effect"],
        ]
        unusual: list[list[Any]] = [
            ["sleep", round(draw.uniform(2, 4.8), 2)],
            ["fail", draw.randint(1, 3)],
            ["hopeless"],
            ["poll", 4],
            ["sleep", 9],
            ["unresponsive", draw.choice([3, 12])],
            ["die", draw.choice([1, 1, 2, 9])],
            ["spawn", "child", [["sleep", 0.2], ["effect"]]],
        ]
        steps = [draw.choice(ordinary) for _ in range(draw.randint(0, 3))]
        if draw.random() < 0.5:
            steps.insert(draw.randint(0, len(steps)), draw.choice(unusual))
        return [*steps, ["effect"]]
