"""Preparing a job first and storing it later: its id is known before it exists."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast import (
    Holdfast,
    Middleware,
    NotFoundError,
    State,
    Submission,
    SubmissionStatus,
    ValidationError,
)
from holdfast.operations.operations import Operations


def _operations(app: Holdfast) -> Operations:
    operations = app.operations
    assert isinstance(operations, Operations)
    return operations


async def test_prepared_job_exists_once_it_is_added_however_often(app: Holdfast) -> None:
    operations = _operations(app)
    job = await operations.prepare(Submission(type="mail.send", payload={"to": "ada"}))
    with pytest.raises(NotFoundError):
        await app.get(job.id)

    first, second = await operations.add(job), await operations.add(job)

    assert SubmissionStatus.ACCEPTED == first.status
    assert job.id == first.job_id == second.job_id
    assert State.SCHEDULED == (await app.get(job.id)).state
    assert 1 == (await app.search()).total_count


async def test_prepared_job_keeps_its_options(app: Holdfast) -> None:
    operations = _operations(app)

    job = await operations.prepare(Submission(type="mail.send", delay=60, idempotency_key="k"))
    await operations.add(job)

    assert State.DELAYED == (await app.get(job.id)).state
    again = await app.submit("mail.send", delay=60, idempotency_key="k")
    assert job.id == again.existing_job_id


async def test_middleware_sees_a_prepared_job_once(app: Holdfast) -> None:
    class Marking(Middleware):
        def submitting(self, submission: Submission) -> Submission:
            seen = (submission.headers or {}).get("seen", "")
            return replace(submission, headers={"seen": f"{seen}x"})

    app.middleware(Marking())

    job = await _operations(app).prepare(Submission(type="mail.send"))
    await _operations(app).add(job)

    assert {"seen": "x"} == (await app.get(job.id)).headers
    delayed = await app.submit("mail.send", delay=60)  # not on the short path
    assert {"seen": "x"} == (await app.get(delayed.job_id)).headers


async def test_faults_are_reported_when_a_job_is_prepared(app: Holdfast) -> None:
    with pytest.raises(ValidationError, match="queue"):
        await _operations(app).prepare(Submission(type="mail.send", queue="no spaces"))


def test_blocking_code_runs_a_coroutine_over_the_operations() -> None:
    app = Holdfast("memory://")

    queues = app.sync.run(lambda operations: operations.queues())

    app.sync.close()
    assert [] == queues
