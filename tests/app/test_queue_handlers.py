"""Handlers of a queue: for names of any form, and a catch-all."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, JobContext, ValidationError
from holdfast.model.job import State
from holdfast.worker.worker import Worker
from tests.worker.rig import ended


@pytest.mark.req("B-9", stores=["memory"])
async def test_catch_all_runs_what_no_task_of_its_queue_handles() -> None:
    app = Holdfast("memory:")
    ran: list[str] = []

    @app.task("known", queue="q")
    async def known(payload: object) -> None:
        ran.append("task")

    @app.handler("q")
    async def others(context: JobContext, payload: object) -> None:
        ran.append(context.type)

    async with app:
        await app.submit("known", {}, queue="q")
        await app.submit("unknown", 5, queue="q")
        elsewhere = await app.submit("unknown", {}, queue="other")
        worker = Worker(app, queues=["q", "other"])
        await worker.run(burst=True)

        assert {"task", "unknown"} == set(ran)
        assert State.SCHEDULED is (await app.get(elsewhere.job_id)).state


@pytest.mark.req("B-9", stores=["memory"])
async def test_failure_in_a_catch_all_is_retried_with_its_options() -> None:
    app = Holdfast("memory:")

    @app.handler("q", permanent=[KeyError])
    def others(payload: object) -> None:
        raise KeyError("gone")

    async with app:
        job = await app.submit("unknown", {}, queue="q")
        await Worker(app, queues=["q"]).run(burst=True)

        assert State.FAILED is await ended(app, job.job_id)


def test_second_handler_needs_replace() -> None:
    app = Holdfast("memory:")
    for name in (None, "a: b"):
        app.handler("q", name)(print_payload)
        with pytest.raises(ValidationError, match="replace=True"):
            app.handler("q", name)(print_payload)
        app.handler("q", name, replace=True)(print_payload)


@pytest.mark.parametrize(
    ("queue", "name"),
    [
        ("a:b", None),
        ("", None),
        ("q", ""),
        ("q", "a\nb"),
        ("q", "holdfast.x"),
        ("holdfast.q", None),
    ],
)
def test_name_that_bullmq_or_holdfast_refuses_is_refused(queue: str, name: str | None) -> None:
    with pytest.raises(ValidationError):
        Holdfast("memory:").handler(queue, name)(print_payload)


def print_payload(payload: object) -> None:
    print(payload)
