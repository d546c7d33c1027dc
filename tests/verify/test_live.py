"""The check of a store in use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.runtime.clock import SystemClock
from holdfast.verify import Kind, Witness, verify
from tests.conformance.stores import Place
from tests.worker.rig import working


def _app(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.task("add", max_attempts=2)
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task("fail", max_attempts=1)
    async def fail() -> None:
        raise ValueError

    return app


async def _fill(app: Holdfast) -> list[str]:
    """Submit several kinds of jobs and wait for the last of them."""
    ids = [(await app.submit("add", {"a": n, "b": 1})).job_id for n in range(30)]
    failed = await app.submit("fail", {})
    child = await app.submit("add", {"a": 1, "b": 1}, depends_on=[failed.job_id])
    twin = [await app.submit("add", {"a": 0, "b": 0}, idempotency_key="k") for _ in range(2)]
    last = await app.submit("add", {"a": 1, "b": 1}, depends_on=ids, dependency_type="FAN_IN")
    ids += [failed.job_id, child.job_id, twin[0].job_id, last.job_id]
    for job_id in ids:
        await app.wait(job_id, timeout=20)
    return ids


async def test_store_in_use_is_sound(place: Place) -> None:
    app = Holdfast(store=place.open(SystemClock()))
    app.registry = _app("memory://").registry
    async with working(app):
        ids = await _fill(app)
        witness = Witness()
        witness.accepted = set(ids)

        report = await verify(app.store, witness)

    assert report.sound, report.findings
    assert len(ids) == report.jobs
    assert 32 == report.states[State.COMPLETED]


async def test_jobs_that_change_during_the_check_are_not_reported(tmp_path: Path) -> None:
    app = _app(f"sqlite:///{tmp_path}/jobs.db")
    async with working(app):
        for _ in range(10):
            await app.submit_batch(
                [{"type": "add", "payload": {"a": n, "b": 1}} for n in range(100)]
            )
            report = await verify(app.store)
            assert report.sound, report.findings
            assert report.moving < report.jobs


@pytest.mark.parametrize(
    ("forgery", "kind"),
    [
        ("UPDATE journal SET lease_version = 0 WHERE event = 'complete'", Kind.STALE_WRITE),
        ("UPDATE job SET state = 'RUNNING'", Kind.RECORD),
        ("DELETE FROM job", Kind.LOST),
    ],
)
async def test_forged_record_is_reported(tmp_path: Path, forgery: str, kind: Kind) -> None:
    app = _app(f"sqlite:///{tmp_path}/jobs.db")
    async with working(app):
        result = await app.submit("add", {"a": 1, "b": 1})
        await app.wait(result.job_id, timeout=20)
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute(forgery)
    connection.close()

    witness = Witness()
    witness.accepted = {result.job_id}
    async with _app(f"sqlite:///{tmp_path}/jobs.db") as again:
        report = await verify(again.store, witness)

    assert report.counts[kind] >= 1
