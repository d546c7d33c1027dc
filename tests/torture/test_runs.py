"""Short crash runs on every store; ``make torture`` makes the long ones."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.torture.plan import TorturePlan
from holdfast.torture.report import Outcome
from holdfast.torture.run import torture
from tests.cli.conftest import environment
from tests.processes import PIPE, in_background, running
from tests.torture.servers import on_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUSY = 5.0
"""Seconds that a busy machine may add to a recovery; the long runs allow none."""

SQLITE_PLAN = TorturePlan(jobs=20_000, kills=24, pauses=7)
SERVER_PLAN = replace(SQLITE_PLAN, jobs=7_000, kills=18, cuts=18, crashes=2)
REQS = (
    "S-1",
    "S-2",
    "S-3",
    "S-4",
    "S-5",
    "S-6",
    "S-9",
    "S-10",
    "S-12",
    "S-15",
    "L-6",
    "M-2",
    "M-9",
)


def _assert_promises_held(outcome: Outcome, plan: TorturePlan) -> None:
    wrong = {name: count for name, count in outcome.violations.items() if count}
    missing = [name for name in outcome.required if not outcome.happened[name]]
    assert ({}, []) == (wrong, missing), "\n".join(outcome.findings)
    assert outcome.jobs >= plan.jobs
    assert outcome.repeated <= outcome.max_repeated
    assert outcome.recovery.p99 <= plan.lease + BUSY


@pytest.mark.req(*REQS, stores=["sqlite"])
async def test_sqlite_keeps_its_promises(tmp_path: Path) -> None:
    _assert_promises_held(await on_store("sqlite", SQLITE_PLAN, tmp_path), SQLITE_PLAN)


@pytest.mark.postgres
@pytest.mark.req(*REQS, stores=["postgres"])
async def test_postgres_keeps_its_promises_while_its_server_crashes(tmp_path: Path) -> None:
    _assert_promises_held(await on_store("postgres", SERVER_PLAN, tmp_path), SERVER_PLAN)


@pytest.mark.redis
@pytest.mark.req(*REQS, stores=["redis"])
async def test_valkey_keeps_its_promises_while_its_server_crashes(tmp_path: Path) -> None:
    _assert_promises_held(await on_store("valkey", SERVER_PLAN, tmp_path), SERVER_PLAN)


async def test_lost_job_is_reported(tmp_path: Path) -> None:
    async def delete_a_job() -> None:
        await asyncio.to_thread(_delete_a_job, tmp_path)

    plan = TorturePlan(jobs=500, kills=0, pauses=0, crashes=1)
    outcome = await torture(f"sqlite:///{tmp_path}/jobs.db", plan, crash=delete_a_job)

    assert 1 == outcome.violations["lost"]
    assert "lost: 1" in outcome.problems
    assert [] == sorted(tmp_path.iterdir()), "the sandbox is removed"  # noqa: ASYNC240  # a few names


def test_terminated_run_in_the_background_ends_and_cleans_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-m", "holdfast", "torture", "--url", url, "--jobs", "20000"]
    with running(in_background(command), env=environment(), stderr=PIPE) as run:
        assert run.stderr is not None
        assert "jobs ended" in run.stderr.readline()
        run.send_signal(signal.SIGTERM)

        assert 130 == run.wait(30)

    assert [] == sorted(tmp_path.iterdir())


def _delete_a_job(folder: Path) -> None:
    (path,) = [path for path in folder.glob("*.torture_*") if "-" not in path.suffix]
    connection = sqlite3.connect(path, timeout=30)
    with connection:
        (seq,) = connection.execute(
            "SELECT min(seq) FROM job WHERE state = 'COMPLETED' AND type = 'work'"
        ).fetchone()
        connection.execute("DELETE FROM job WHERE seq = ?", [seq])
    connection.close()
