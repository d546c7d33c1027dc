"""The demonstration shows everything and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import environment


@pytest.mark.slow
@pytest.mark.req("S-1", "S-2", "S-6", "M-9", "A-12", "L-5", "L-6", stores=["sqlite"])
def test_demonstration_shows_everything_and_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo"],
        cwd=tmp_path,
        env=environment(TMPDIR=str(scratch), COLUMNS="70"),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "" == done.stderr
    promised = [line for line in done.stdout.splitlines() if line.startswith("ok  ")]
    assert 8 == len(promised)
    assert "FAIL" not in done.stdout
    assert "recovered: worker process" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 90
    assert [] == list(scratch.iterdir())
    assert [scratch] == list(tmp_path.iterdir())
    assert [] == _processes_using(str(scratch))


def _processes_using(folder: str) -> list[str]:
    """Processes that were started with this folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                int(entry.name) != os.getpid()
                and folder.encode() in (entry / "environ").read_bytes()
            ):
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found
