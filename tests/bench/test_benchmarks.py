"""Every benchmark runs for a moment, so that none breaks unnoticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS
from tests.processes import PIPE, running

ROOT = Path(__file__).parents[2]
WITHIN = 100.0
"""Seconds; a moment takes two to ten."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_benchmark_runs_for_a_moment(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", name, "--moment", "--folder", str(tmp_path)]
    with running(command, cwd=ROOT, stdout=PIPE, stderr=subprocess.STDOUT) as benchmark:
        printed, _ = benchmark.communicate(timeout=WITHIN)

    assert 0 == benchmark.returncode, printed
