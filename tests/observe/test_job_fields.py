"""The job in the lines of a program that sets up logging itself: a filter and a processor."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from holdfast import Holdfast, Worker
from holdfast.contrib.structlog import add_job
from holdfast.observe.records import JobLogFilter


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_filter_adds_the_job_to_every_record(kind: str) -> None:
    stream, logger = io.StringIO(), logging.getLogger("test.job_fields")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(job_id)s %(job_type)s %(attempt)s %(message)s"))
    handler.addFilter(JobLogFilter())
    logger.addHandler(handler)
    app = Holdfast("memory://")

    async def coroutine() -> None:
        logger.warning("inside")

    def thread() -> None:
        logger.warning("inside")

    app.register("work", coroutine if kind == "coroutine" else thread)
    async with app:
        job = await app.submit("work")
        await Worker(app).run(burst=True)
    logger.warning("outside")
    logger.removeHandler(handler)

    assert [f"{job.job_id} work 1 inside", "  0 outside"] == stream.getvalue().splitlines()


async def test_structlog_processor_adds_the_job() -> None:
    stream = io.StringIO()
    log = structlog.wrap_logger(
        structlog.PrintLogger(stream), [add_job, structlog.processors.JSONRenderer()]
    )
    app = Holdfast("memory://")

    @app.task("work", queue="mail")
    async def work() -> None:
        log.info("inside", attempt="mine")

    async with app:
        job = await work.submit()
        await Worker(app, queues=["mail"]).run(burst=True)
    log.info("outside")

    inside, outside = map(json.loads, stream.getvalue().splitlines())
    assert {
        "event": "inside",
        "job_id": job.job_id,
        "job_type": "work",
        "job_queue": "mail",
        "attempt": "mine",
    } == inside
    assert {"event": "outside"} == outside
