"""The real worker, heartbeat, maintenance and client code under faults, in virtual time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.many import run_seed
from tests.simulation.scenario import simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"memory": 440, "sqlite": 60}
STRIDE = 110
MUST_HAPPEN = (
    *(
        "kill",
        "client killed",
        "skipped beats",
        "pause longer than a lease",
        "hang",
        "graceful stop",
        "cut off",
        "outage",
    ),
    *("request lost", "reply lost", "acts late", "acts twice", "slow"),
    *("swap refused", "stale answer refused", "repeated answer", "late answer still welcome"),
    *("beat refused", "note refused", "heartbeat.missed", "job.lease_lost", "job.unresponsive"),
    *("job.reaped", "job.released", "job.stale", "maintenance.leading", "store.unavailable"),
    *("submission ACCEPTED", "submission DUPLICATE", "fan-in submitted", "client gave up"),
    *("cancel CANCELLED", "cancel CANCEL_REQUESTED", "cancel ALREADY_COMPLETE", "wait answered"),
    *("ended COMPLETED", "ended FAILED", "ended DEAD_LETTER", "ended CANCELLED", "tick"),
    *("retry QUEUED", "retry NOT_RETRIABLE", "store.available"),
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS["memory"], STRIDE))
@pytest.mark.req("S-1", "S-4", "S-5", "S-6", "S-9", "S-10", "S-11", stores=["memory"])
@pytest.mark.req("S-12", "S-15", "M-2", "M-9", "A-12", "L-6", stores=["memory"])
def test_promises_hold_in_virtual_time_on_the_memory_store(first: int) -> None:
    _assert_held("memory", range(first, first + STRIDE))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.req("S-1", "S-4", "S-5", "S-6", "S-9", "S-10", "S-11", stores=["sqlite"])
@pytest.mark.req("S-12", "S-15", "M-2", "M-9", "A-12", "L-6", stores=["sqlite"])
def test_promises_hold_in_virtual_time_on_sqlite() -> None:
    _assert_held("sqlite", range(SEEDS["sqlite"]))


def _assert_held(store: str, seeds: range) -> None:
    """Nothing was wrong, and everything that can go wrong went wrong somewhere."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run_seed((seed, store))
        assert not result.wrong, result.report
        counts += result.counts
    assert [] == [what for what in MUST_HAPPEN if not counts[what]]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed(store: str) -> None:
    program = (
        "from tests.simulation.scenario import simulate;"
        f"print(simulate(3, {store!r}).record.digest())"
    )

    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": "src", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert {f"{simulate(3, store).record.digest()}\n"} == digests


def test_other_seeds_give_other_traces() -> None:
    assert 3 == len({simulate(seed).record.digest() for seed in range(3)})


def test_a_report_shortens_job_ids_and_ends_with_what_is_wrong() -> None:
    run = simulate(0)
    run.violations = [f"{run.jobs[0].id} was accepted, but is not in the store"]

    lines = run.report().splitlines()

    assert ["seed 0 on memory:", "  j1 was accepted, but is not in the store"] == lines[-2:]
    assert any("claim -> j1 attempt 1" in line for line in lines)
