"""The queues that take part: what each one needs, where it stores jobs, and how it is started."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.environment import made_environment
from bench.redis_peers import node_folder
from tests.wire.peer import NodeMissing, find_node

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = HERE / "peers"


@dataclass(frozen=True)
class Entrant:
    """One queue on one store, ready to be started."""

    name: str
    store: str
    submit: tuple[str, ...]
    work: tuple[str, ...]
    folder: Path
    has_parent: bool = False
    """Whether the process that runs jobs has a parent that outlives it."""
    has_fastest: bool = True
    """Whether any setting makes recovery faster."""


@dataclass(frozen=True)
class Package:
    """A Python library on PyPI, and its program in ``peers``."""

    name: str
    store: str
    program: str
    packages: tuple[str, ...]
    has_parent: bool = False
    has_fastest: bool = True
    needs: tuple[int, int] = (3, 11)
    """The oldest Python that it runs on."""

    def installed(self, folder: Path) -> Entrant | str:
        """Install into an environment; return the reason where that is impossible."""
        python = str(folder / "bin" / "python")
        if not Path(python).exists() and not made_environment(folder, self.needs):
            return f"{self.name}: it needs Python {self.needs[0]}.{self.needs[1]}"
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "install", "--quiet", *self.packages],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"{self.name}: pip cannot install it here: {done.stderr.splitlines()[0][:200]}"
        command = (python, f"{self.program}.py")
        return Entrant(
            f"{self.name} {_version(python, self.packages[0])}",
            self.store,
            (*command, "submit"),
            (*command, "work"),
            PEERS,
            self.has_parent,
            self.has_fastest,
        )


PACKAGES = (
    Package("Celery", "Redis", "celery_peer", ("celery[redis]",), has_parent=True),
    Package("RQ", "Redis", "rq_peer", ("rq",), has_parent=True),
    Package("Dramatiq", "Redis", "dramatiq_peer", ("dramatiq[redis]",), has_parent=True),
    Package("arq", "Redis", "arq_peer", ("arq",)),
    Package("SAQ", "Redis", "saq_peer", ("saq[redis]", "typing-extensions")),
    Package("BullMQ (Python)", "Redis", "bullmq_peer", ("bullmq",)),
    Package(
        "Procrastinate", "PostgreSQL", "procrastinate_peer", ("procrastinate", "psycopg[binary]")
    ),
    Package("PgQueuer", "PostgreSQL", "pgqueuer_peer", ("pgqueuer[asyncpg]",)),
    Package(
        "Oban (Python)", "PostgreSQL", "oban_peer", ("oban",), has_fastest=False, needs=(3, 12)
    ),
    Package("flexiq", "SQLite", "flexiq_peer", ("flexiq",)),
    Package("huey", "SQLite", "huey_peer", ("huey",), has_fastest=False),
)


def holdfast(store: str) -> Entrant:
    """Return this checkout under its supervisor."""
    python = sys.executable
    return Entrant(
        "holdfast",
        store,
        (python, "-m", "bench.recovery.site", "submit"),
        (python, "-m", "holdfast", "worker", "bench.recovery.site:app", "--log-level", "warning"),
        ROOT,
        has_parent=True,
    )


def node(_: Path) -> Entrant | str:
    """Return BullMQ in Node, of the release that the wire tests use."""
    try:
        folder = node_folder(install=True)
    except NodeMissing as error:
        return f"BullMQ (Node): {error}"
    program = shutil.copy(PEERS / "bullmq_node.mjs", folder)
    command = (str(find_node()[0]), program)
    return Entrant("BullMQ (Node)", "Redis", (*command, "submit"), (*command, "work"), folder)


def peers() -> dict[str, Callable[[Path], Entrant | str]]:
    """Return how to install each peer, by the name of its folder."""
    return {each.program: each.installed for each in PACKAGES} | {"node": node}


def _version(python: str, package: str) -> str:
    script = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    name = package.partition("[")[0]
    found = subprocess.run(
        [python, "-c", script, name], check=True, stdout=subprocess.PIPE, text=True
    )
    return found.stdout.strip()
