"""Jobs in Django's tests: in memory, run when the test says so, on the test's own connections."""

from __future__ import annotations

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from holdfast.contrib.django.configured import app
from holdfast.tasks.registry import RunnerKind
from holdfast.testing.driver import run_here, sync_context
from holdfast.testing.jobs import SandboxJob
from holdfast.testing.sandbox import Sandbox
from holdfast.worker.executor import perform_sync
from holdfast.worker.outcomes import Outcome
from holdfast.worker.run import Run


class HoldfastTestMixin:
    """Gives each test of a ``TestCase`` a sandbox, ``self.jobs``, in place of the store.

    No job runs until the test calls ``run_jobs``. Handlers then see the rows of the test's
    transaction.
    """

    jobs: Sandbox

    def setUp(self) -> None:
        """Open the sandbox; it closes when the test has ended."""
        super().setUp()  # type: ignore[misc]  # a TestCase comes after the mixin
        self.jobs = Sandbox(app, execute=_in_thread_of_test)
        self.enterContext(self.jobs)  # type: ignore[attr-defined]  # of the TestCase

    def run_jobs(self, *, raising: bool = True) -> list[SandboxJob]:
        """Run what waits for a commit, then every ready job; return them after their attempts.

        A ``TestCase`` never commits, so the functions given to ``transaction.on_commit`` run here.
        With ``raising``, exceptions of handlers are those of the test.
        """
        _run_commit_callbacks()
        return async_to_sync(self.jobs.drain)(raising=raising)

    async def arun_jobs(self, *, raising: bool = True) -> list[SandboxJob]:
        """Do the same in an async test."""
        await sync_to_async(_run_commit_callbacks)()
        return await self.jobs.drain(raising=raising)


def _run_commit_callbacks() -> None:
    for connection in connections.all(initialized_only=True):
        while connection.run_on_commit:
            _, function, _ = connection.run_on_commit.pop(0)
            function()


async def _in_thread_of_test(run: Run) -> Outcome:
    """Run a plain handler in the thread of the test: its connections belong to that thread."""
    if run.handler.runner is RunnerKind.ASYNC:
        return await run_here(run)
    perform = sync_to_async(perform_sync, thread_sensitive=True)
    return await perform(run.handler, run.job, sync_context(run, run.context()))


__all__ = ["HoldfastTestMixin"]
