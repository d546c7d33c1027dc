"""Real worker processes over one store: an SQLite file, unless a URL is given."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast import Holdfast
from holdfast.operations.workers import workers

ROOT = Path(__file__).parents[2]


class Machines:
    """Starts processes and leaves none behind."""

    def __init__(self, place: Path, url: str = "") -> None:
        self.place = place
        self.url = url or f"sqlite:///{place}/jobs.db"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, **options: object) -> subprocess.Popen[bytes]:
        """Start a worker (``alone``) or a ``supervisor``."""
        return self._start("tests.worker.run", kind, json.dumps(options))

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the ``holdfast`` command."""
        return self._start("holdfast", *arguments)

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "HOLDFAST_URL": self.url,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def app(self) -> Holdfast:
        """Return an app for a client of the same store."""
        return Holdfast(self.url)

    def file(self, name: str) -> str:
        """Return the path of a file that a handler may write."""
        return str(self.place / name)

    def clear(self) -> None:
        """Kill every process that still runs."""
        for process in self.processes:
            if process.poll() is None:
                for child in children(process.pid):
                    _kill(child)
                process.kill()
            process.wait()


def children(pid: int) -> list[int]:
    """Return the processes a process started, and theirs."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        direct = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid for child in direct for pid in (child, *children(child))]


async def worker_pids(app: Holdfast) -> dict[str, int]:
    """Return the live workers' processes by worker id."""
    return {info.id: info.pid for info in await workers(app.store)}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
