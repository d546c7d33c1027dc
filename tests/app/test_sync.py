"""The same operations for blocking code."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, JobContext, NotFoundError, State, Worker
from holdfast.model.results import CancellationStatus
from holdfast.operations.sync import SyncOperations, SyncWebhooks
from holdfast.webhooks import Webhooks
from scripts import generate_sync
from tests.conformance.stores import Place

OPERATIONS = [
    "failure_groups",
    "series",
    "submit",
    "submit_batch",
    "chain",
    "get",
    "wait",
    "search",
    "count",
    "stats",
    "cancel",
    "cancel_batch",
    "retry_batch",
    "delete_batch",
    "update",
    "failure",
    "failures",
    "retry",
    "release",
    "delete",
    "events",
    "logs",
    "queues",
    "payload",
    "set_ageing",
    "pause",
    "resume",
    "workers",
    "explain",
    "graph",
    "limit_states",
    "set_limit",
    "lift_limit",
    "drain",
    "undrain",
    "scale",
]


@pytest.fixture
def app(place: Place) -> Iterator[Holdfast]:
    app = Holdfast(place.url)
    yield app
    app.sync.close()


def test_both_forms_offer_the_same_operations() -> None:
    offered = {name for name in dir(SyncOperations) if not name.startswith("_")}

    assert {*OPERATIONS, "bulk", "close", "run", "schedules", "webhooks"} == offered


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_forms_take_the_same_arguments(name: str) -> None:
    blocking = inspect.signature(getattr(SyncOperations, name))
    awaited = inspect.signature(getattr(Holdfast, name))

    assert awaited.parameters == blocking.parameters
    assert awaited.return_annotation.replace("Async", "") == blocking.return_annotation


@pytest.mark.parametrize("name", [name for name in vars(Webhooks) if name[0] != "_"])
def test_both_forms_of_webhooks_take_the_same_arguments(name: str) -> None:
    blocking = inspect.signature(getattr(SyncWebhooks, name))

    assert inspect.signature(getattr(Webhooks, name)) == blocking


def test_module_of_blocking_operations_is_up_to_date() -> None:
    written = generate_sync.TARGET.read_text("utf-8")

    assert generate_sync.generated() == written, "run make sync"
    control = generate_sync.CONTROL_TARGET.read_text("utf-8")
    assert generate_sync.generated_control() == control, "run make sync"


def test_jobs_can_be_managed_without_a_loop(app: Holdfast) -> None:
    @app.task("t")
    async def task(n: int) -> None: ...

    job_id = task.submit_sync(1).job_id
    held = app.sync.submit("t", {"n": 2}, hold=True).job_id
    batch = app.sync.submit_batch([task.submission(3), task.submission(4)])
    chain = app.sync.chain(task.submission(5), task.submission(6))

    assert State.SCHEDULED is app.sync.get(job_id).state
    assert State.SCHEDULED is app.sync.release(held).new_state
    assert CancellationStatus.CANCELLED is app.sync.cancel(held).status
    assert State.CANCELLED is app.sync.wait(held, timeout=5).state
    assert (2, 2) == (batch.accepted, len(chain))
    assert 6 == app.sync.search().total_count
    assert 1 == app.sync.cancel_batch(job_ids=[job_id]).cancelled
    assert 3 == app.sync.stats().scheduled
    assert "ended CANCELLED" in app.sync.explain(job_id).message
    assert [] == app.sync.logs(job_id)
    assert "NOT_RETRIABLE" == app.sync.retry(job_id).status
    assert "DELETED" == app.sync.delete(job_id).status
    app.sync.pause("default")
    assert [True] == [queue.paused for queue in app.sync.queues()]
    app.sync.resume("default")
    assert [] == app.sync.workers()
    assert 0 == app.sync.failures().total_count
    assert "submit" == next(iter(app.sync.events(after=None, follow=False))).transition.event  # type: ignore[union-attr]
    with pytest.raises(NotFoundError):
        app.sync.failure("nobody")


def test_many_threads_share_one_connection(app: Holdfast) -> None:
    threads = [
        threading.Thread(target=lambda: [app.sync.submit("t") for _ in range(10)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 80 == app.sync.search().total_count
    assert 1 == sum(thread.name == "holdfast-sync" for thread in threading.enumerate())


def test_closed_operations_open_again(app: Holdfast) -> None:
    app.sync.submit("t")
    app.sync.close()

    app.sync.submit("t")

    assert 2 == app.sync.search().total_count


async def test_blocking_call_from_a_thread_reaches_the_jobs_of_a_running_app(
    app: Holdfast,
) -> None:
    @app.task("t")
    async def task(ctx: JobContext) -> str:
        return "done"

    async with app:
        job_id = (await asyncio.to_thread(task.submit_sync)).job_id
        await Worker(app, maintenance=False).run(burst=True)
        job = await asyncio.to_thread(app.sync.get, job_id)

    assert "done" == job.output


async def test_blocking_call_on_the_loop_it_needs_is_refused() -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(RuntimeError, match="would block the event loop it needs"):
            app.sync.submit("t")


def test_forked_child_gets_a_connection_of_its_own(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from holdfast import Holdfast\n"
        "app = Holdfast(sys.argv[1])\n"
        "app.sync.submit('parent')\n"
        "pid = os.fork()\n"
        "app.sync.submit('child' if pid == 0 else 'parent')\n"
        "if pid == 0:\n    os._exit(0)\n"
        "assert 0 == os.waitpid(pid, 0)[1]\n"
        "print(sorted(job.type for job in app.sync.search().jobs))\n"
        "app.sync.close()\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, f"sqlite:///{tmp_path}/jobs.db"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ("['child', 'parent', 'parent']\n", "") == (done.stdout, done.stderr)
