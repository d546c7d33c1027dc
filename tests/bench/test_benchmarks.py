"""Every benchmark runs for a moment, so that none breaks unnoticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS

ROOT = Path(__file__).parents[2]
WITHIN = 100.0
"""Seconds; a moment takes two to ten."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_benchmark_runs_for_a_moment(name: str, tmp_path: Path) -> None:
    code, printed = run("-m", "bench", name, "--moment", "--folder", str(tmp_path))

    assert code == 0, printed


def run(*arguments: str) -> tuple[int, str]:
    """Run Python in a process group of its own, so that nothing it starts outlives it."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=WITHIN)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, printed
