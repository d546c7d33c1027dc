"""Programs that tests start end with the test, however the suite was started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes import PIPE, in_background, running

ROOT = Path(__file__).parents[1]
SLEEPER = "import signal; print('up', flush=True); signal.pause()"
FAMILY = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


def test_program_takes_an_interrupt() -> None:
    with running([sys.executable, "-c", SLEEPER], stdout=PIPE, stderr=PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.send_signal(signal.SIGINT)

        assert -signal.SIGINT == program.wait(20)


def test_program_takes_an_interrupt_when_the_suite_runs_in_the_background() -> None:
    this = f"{Path(__file__).relative_to(ROOT)}::{test_program_takes_an_interrupt.__name__}"
    done = subprocess.run(
        in_background([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", this]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 0 == done.returncode, done.stdout


def test_program_and_what_it_started_end_with_the_block() -> None:
    with running([sys.executable, "-c", FAMILY], stdout=PIPE) as program:
        assert program.stdout is not None
        child = os.pidfd_open(int(program.stdout.readline()))

    assert -signal.SIGKILL == program.returncode
    ended = select.poll()  # select() takes no descriptor above 1023
    ended.register(child, select.POLLIN)
    assert [(child, select.POLLIN)] == ended.poll(20_000)
    os.close(child)
