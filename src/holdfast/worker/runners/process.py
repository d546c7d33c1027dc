"""Runs functions in child processes: CPU-bound ones, and those that must be stoppable.

Interrupting a job kills its process and everything that process started; a process that dies
ends only its own job.
"""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.app import Holdfast
from holdfast.model.job import Encoding
from holdfast.model.submission import Submission
from holdfast.observe import Observer
from holdfast.tasks.context import Channel
from holdfast.tasks.registry import RunnerKind
from holdfast.worker.executor import system_failure
from holdfast.worker.outcomes import Outcome
from holdfast.worker.run import Run
from holdfast.worker.runners.handlers import setup_for
from holdfast.worker.runners.pool import ChildBrokenError, ChildDiedError, ChildPool, ChildProcess
from holdfast.worker.runners.protocol import (
    Answer,
    Done,
    KeepCheckpoint,
    Notice,
    Question,
    ReadChildren,
    ReadResults,
    Reply,
    ReportProgress,
    Signal,
    SpawnJob,
    UpdatePayload,
    Work,
    WriteLog,
    wire_error,
)


class ProcessRunner:
    """Runs handlers in a pool of child processes."""

    def __init__(self, app: Holdfast, observer: Observer) -> None:
        self._observer = observer
        self._pool: ChildPool | None = None
        if any(handler.runner is RunnerKind.PROCESS for handler in app.registry):
            graceful = bool(app.registry.seams.resources.functions)
            self._pool = ChildPool(setup_for(app), observer, graceful=graceful)
            self._pool.warm_up()

    async def run(self, run: Run) -> Outcome:
        assert self._pool is not None
        try:
            child = await self._pool.take()
        except ChildBrokenError as error:
            return system_failure(f"no process to run it: {error}", "CHILD_BROKEN")
        try:
            done = await _run_in(child, run)
        except asyncio.CancelledError:
            child.send(_signal(run))  # why, before the order to stop
            await asyncio.shield(self._end(child))
            raise
        except ChildDiedError as error:
            self._pool.forget(child)
            self._observer.emit(
                "child.died",
                job_id=run.job.id,
                type=run.job.type,
                attempt=run.job.attempt,
                error=str(error),
            )
            return system_failure(str(error), "CHILD_DIED")
        if done.leaving:
            self._pool.forget(child)
        else:
            self._pool.give_back(child)
        return done.outcome

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _end(self, child: ChildProcess) -> None:
        assert self._pool is not None
        self._pool.forget(child)
        await child.stop()


async def _run_in(child: ChildProcess, run: Run) -> Done:
    """Send a job to a child, answer its questions and return its outcome."""
    child.send(
        Work(
            job=run.job,
            now=run.channel().now(),
            deadline=run.times_out_at,
            memory_limit=run.handler.options.memory_limit,
        )
    )
    run.on_signal = lambda run: child.send(_signal(run))
    while True:
        message = await child.receive()
        if isinstance(message, Done):
            return message
        child.send(await _reply(run, message))  # type: ignore[arg-type]  # nothing else is left


def _signal(run: Run) -> Signal:
    signals = run.signals
    return Signal(signals.cancel, signals.lease_lost, signals.interruption)


async def _reply(run: Run, question: Question) -> Reply:
    try:
        return Reply(await _answer(run, question))
    except Exception as error:  # noqa: BLE001  # it is raised in the handler
        return Reply(None, wire_error(error))


async def _answer(run: Run, question: Question) -> Answer:
    match question:
        case ReportProgress() | WriteLog() | KeepCheckpoint() | UpdatePayload():
            return await _write(run.channel(), question)
        case SpawnJob(data, encoding, key, fields):
            payload = data if encoding is Encoding.BYTES else msgspec.Raw(data)
            submission = Submission(payload=payload, **fields)  # type: ignore[arg-type]  # checked there
            return await run.channel().spawn_prepared(submission, key)
        case ReadResults():
            return await run.channel().results()
        case ReadChildren():
            return await run.channel().children()


async def _write(channel: Channel, notice: Notice) -> Answer:
    match notice:
        case ReportProgress(progress):
            await channel.progress(progress)
        case WriteLog(line):
            await channel.log(line)
        case KeepCheckpoint(data):
            return await channel.checkpoint(data)
        case UpdatePayload(data):
            return await channel.update_payload(data)
    return None
