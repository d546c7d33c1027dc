"""The event loop that worker and server processes run on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WHICH = """
import asyncio, gc, sys
{before}
from holdfast.runtime.event_loop import run

async def main():
    return type(asyncio.get_running_loop()).__module__

print(run(main()), gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("before", "loop"),
    [("", "uvloop"), ("sys.modules['uvloop'] = None", "asyncio.unix_events")],
    ids=["installed", "not installed"],
)
def test_worker_processes_run_on_uvloop_where_it_is_installed(before: str, loop: str) -> None:
    pytest.importorskip("uvloop", reason="the extra 'speed' does not exist here")
    code = WHICH.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"{loop} True" == done.stdout.strip()
