"""Submitting many jobs at once."""

from __future__ import annotations

import pytest

from holdfast import (
    DependencyKind,
    DuplicateError,
    Holdfast,
    State,
    Submission,
    SubmissionStatus,
    ValidationError,
)


@pytest.mark.req("A-2", "M-9")
async def test_jobs_of_a_batch_depend_on_each_other_by_ref(app: Holdfast) -> None:
    result = await app.submit_batch(
        [
            Submission(type="merge", depends_on=["a", "b"]),
            Submission(type="part", ref="a"),
            {"type": "part", "ref": "b", "payload": {"n": 2}},
        ]
    )

    merge, a, b = [await app.get(r.job_id) for r in result.results]
    assert (3, 3, 0) == (result.total, result.accepted, result.rejected)
    assert (a.job_id, b.job_id) == merge.depends_on
    assert (State.PENDING, State.SCHEDULED, State.SCHEDULED) == (merge.state, a.state, b.state)


@pytest.mark.req("A-2", "A-3")
async def test_atomic_batch_with_a_fault_names_every_fault_and_writes_nothing(
    app: Holdfast,
) -> None:
    with pytest.raises(ValidationError) as caught:
        await app.submit_batch(
            [
                Submission(type="fine"),
                Submission(type="", max_attempts=0),
                Submission(type="x", delay=-1),
            ]
        )

    assert {"jobs[1].type", "jobs[1].max_attempts", "jobs[2].delay"} == {
        fault.field for fault in caught.value.faults
    }
    assert 0 == (await app.search()).total_count


@pytest.mark.req("A-2")
async def test_batch_that_is_not_atomic_gives_each_job_its_own_result(app: Holdfast) -> None:
    first = await app.submit("pay", {"n": 1}, idempotency_key="k")

    result = await app.submit_batch(
        [
            Submission(type="fine"),
            Submission(type="bad type"),
            Submission(type="pay", payload={"n": 1}, idempotency_key="k"),
            Submission(type="pay", payload={"n": 2}, idempotency_key="k"),
            Submission(type="orphan", depends_on=["nobody"]),
        ],
        atomic=False,
    )

    fine, bad, duplicate, conflict, orphan = result.results
    assert (5, 2, 3) == (result.total, result.accepted, result.rejected)
    assert SubmissionStatus.ACCEPTED is fine.status
    assert isinstance(bad.error, ValidationError)
    assert (SubmissionStatus.DUPLICATE, first.job_id, State.SCHEDULED) == (
        duplicate.status,
        duplicate.job_id,
        duplicate.state,
    )
    assert (SubmissionStatus.REJECTED, first.job_id) == (conflict.status, conflict.existing_job_id)
    assert isinstance(conflict.error, DuplicateError)
    assert isinstance(orphan.error, ValidationError)
    assert 2 == (await app.search()).total_count


@pytest.mark.req("A-2", "M-2")
async def test_atomic_batch_with_a_conflicting_key_writes_nothing(app: Holdfast) -> None:
    await app.submit("pay", {"n": 1}, idempotency_key="k")

    with pytest.raises(DuplicateError):
        await app.submit_batch(
            [
                Submission(type="fine"),
                Submission(type="pay", payload={"n": 2}, idempotency_key="k"),
            ]
        )

    assert 1 == (await app.search()).total_count


@pytest.mark.req("M-9")
async def test_cycle_is_refused_and_named(app: Holdfast) -> None:
    with pytest.raises(ValidationError, match=r"a -> b -> a|b -> a -> b"):
        await app.submit_batch(
            [
                Submission(type="x", ref="a", depends_on=["b"]),
                Submission(type="x", ref="b", depends_on=["a"]),
            ]
        )

    assert 0 == (await app.search()).total_count


@pytest.mark.req("A-2")
@pytest.mark.parametrize("count", [0, 1001])
async def test_batch_holds_one_to_a_thousand_jobs(app: Holdfast, count: int) -> None:
    with pytest.raises(ValidationError, match=f"1 to 1000 submissions, got {count}"):
        await app.submit_batch([Submission(type="x")] * count)


@pytest.mark.req("A-2", "A-3")
async def test_unknown_and_forbidden_fields_are_named(app: Holdfast) -> None:
    with pytest.raises(ValidationError) as caught:
        await app.submit_batch([{"type": "x", "id": "mine", "colour": "red"}])

    assert {"id", "colour"} == {fault.field.rpartition(".")[2] for fault in caught.value.faults}


@pytest.mark.req("M-9")
async def test_chain_runs_steps_in_order_and_a_list_in_parallel(app: Holdfast) -> None:
    @app.task("step")
    async def step(number: int) -> int:
        return number

    results = await app.chain(
        step.submission(1), [step.submission(2), step.submission(3)], step.submission(4)
    )

    one, two, three, four = [await app.get(r.job_id) for r in results]
    jobs = await app.store.get([two.job_id, four.job_id])
    assert () == one.depends_on
    assert (one.job_id,) == two.depends_on == three.depends_on
    assert (two.job_id, three.job_id) == four.depends_on
    assert [DependencyKind.FAN_IN, DependencyKind.FAN_IN] == [
        job.dependency_kind for job in jobs if job
    ]


@pytest.mark.req("M-9")
@pytest.mark.parametrize(
    ("steps", "message"), [([], "1 to 1000"), ([[]], r"steps\[0\] must hold a job")]
)
async def test_empty_chains_are_refused(app: Holdfast, steps: list[object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        await app.chain(*steps)  # type: ignore[arg-type]  # that is the point
