"""Runs a task inline with a context that records everything the handler does with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.model.children import ChildJob
from holdfast.model.job import CancelRequest, LogLine, Progress
from holdfast.model.payload import encode, encode_result
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.injecting import InlineCall
from holdfast.tasks.inline import InlineChannel, InlineSpawn, inline_job
from holdfast.tasks.job_view import Signals
from holdfast.tasks.registry import is_coroutine
from holdfast.tasks.scope import run_now
from holdfast.tasks.signature import Signature
from holdfast.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")


class Rehearsal(Generic[P, R]):
    """Runs a task when called, at once and in place: no queue, no store, no retries.

    The arguments pass through JSON, as on their way to a worker. The call returns what the
    handler returns and raises what it raises. The handler finds ``attempt``, ``checkpoint``,
    ``dependency_results`` and ``children`` in its context; without ``children``, a handler that
    waits for what it spawned ends with ``WaitForChildren``. ``cancel_at`` and
    ``lose_lease_at`` number the write at which a cancellation arrives or the lease is lost: 1 is
    the first progress, checkpoint, log line or spawn, 0 is before the handler starts.

        rehearsal = Rehearsal(index, attempt=2, checkpoint=2)
        await rehearsal(pages=4)
        assert rehearsal.checkpoints == [3, 4]
    """

    def __init__(
        self,
        task: Task[P, R],
        *,
        attempt: int = 1,
        checkpoint: object = None,
        dependency_results: Mapping[str, object] | None = None,
        children: Sequence[ChildJob] = (),
        cancel_at: int | None = None,
        lose_lease_at: int | None = None,
        seed: int = 0,
    ) -> None:
        self.clock = ManualClock()
        randomness = Randomness(seed)
        signals = Signals()
        self._function = task.function
        self._seams = task.app.registry.seams
        self._signature = Signature(task.function)
        self._channel = _RehearsalChannel(self.clock, randomness, signals, cancel_at, lose_lease_at)
        self._channel.given_results = {
            job_id: encode_result(value) for job_id, value in (dependency_results or {}).items()
        }
        self._channel.given_children = [
            replace(child, result=encode_result(child.result)) for child in children
        ]
        job = inline_job(task.type, self.clock, randomness)
        assert job.started_at is not None
        data = None if checkpoint is None else encode(checkpoint)[0]
        self._job = replace(job, attempt=attempt, checkpoint=data)
        deadline = job.started_at + job.timeout
        self._context = JobContext(self._job, deadline, signals, self._channel)
        self._sync_context = SyncJobContext(self._job, deadline, signals, self._call)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task; await the call if the task is a coroutine function."""
        payload, encoding = encode(self._signature.pack(args, kwargs))
        arguments = self._signature.unpack(replace(self._job, payload=payload, encoding=encoding))
        context = self._context if is_coroutine(self._function) else self._sync_context
        if self._signature.context is not None:
            arguments[self._signature.context] = context
        if not self._signature.dependencies:
            return self._function(**arguments)
        call = InlineCall(self._function, self._signature.dependencies, self._seams, context)
        value: R = call(arguments)
        return value

    @property
    def job_id(self) -> str:
        """The job id that the handler sees."""
        return self._job.id

    @property
    def progress(self) -> list[Progress]:
        """The progress that the handler reported, oldest first."""
        return self._channel.progressed

    @property
    def checkpoints(self) -> list[object]:
        """The checkpoints, oldest first, as the next attempt would restore them."""
        return [_decoded(data) for data in self._channel.checkpoints]

    @property
    def logs(self) -> list[LogLine]:
        """The lines that the handler logged, oldest first."""
        return self._channel.lines

    @property
    def spawned(self) -> list[InlineSpawn]:
        """The jobs that the handler spawned; spawns with the same key count once."""
        return self._channel.spawned

    def cancel(self, reason: str = "cancelled", *, force: bool = False) -> None:
        """Request cancellation from now on."""
        self._channel.cancel(reason, force=force)

    def _call(self, method: str, *args: object, **kwargs: object) -> object:
        return run_now(getattr(self._context, method)(*args, **kwargs))


class _RehearsalChannel(InlineChannel):
    """Records every write; cancels the job or loses the lease at one of them."""

    def __init__(
        self,
        clock: ManualClock,
        randomness: Randomness,
        signals: Signals,
        cancel_at: int | None,
        lose_lease_at: int | None,
    ) -> None:
        super().__init__(clock, randomness)
        self._signals = signals
        self._cancel_at = cancel_at
        self._lose_lease_at = lose_lease_at
        self._writes = -1
        self.holds()

    def holds(self) -> bool:
        self._writes += 1
        if self._writes == self._cancel_at:
            self.cancel("cancelled", force=False)
        if self._writes == self._lose_lease_at:
            self._signals.lease_lost = True
        return not self._signals.lease_lost

    def cancel(self, reason: str, *, force: bool) -> None:
        self._signals.cancel = CancelRequest(reason, force, self.now())


def _decoded(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data


__all__ = ["Rehearsal"]
