"""Plant every known bug in a copy of the tree and require the suite to fail.

``python -m tests.mutants [WORD...]``: only those whose file or reason holds one of the words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import memory, model, postgres, redis, redis_flows, running, sqlite
from tests.mutants.mutant import Mutant, RottenMutant

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 2
LONGEST = 180
SURVIVED, CAUGHT, NONE_CHOSEN = 0, 1, 5  # pytest's exit statuses

MUTANTS: tuple[Mutant, ...] = (
    *model.MUTANTS,
    *memory.MUTANTS,
    *sqlite.MUTANTS,
    *postgres.MUTANTS,
    *redis.MUTANTS,
    *redis_flows.MUTANTS,
    *running.MUTANTS,
)

VERBS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/conformance/test_verbs_*"))
LAYERS: dict[str, tuple[list[str], str]] = {
    "lifecycle": (["tests/model/test_lifecycle.py", "tests/model/test_table.py"], ""),
    "policy": (["tests/model/test_policy.py"], ""),
    "versions": (["tests/model/test_versions.py"], ""),
    "pace": (["tests/model/test_pace.py"], ""),
    "seams": (["tests/worker/test_middleware.py", "tests/worker/test_depends.py"], "not process"),
    "dependencies": (["tests/model/test_dependencies.py"], ""),
    "memory verbs": (VERBS, "memory"),
    "postgres verbs": (VERBS, "postgres"),
    "postgres race": (["tests/conformance/test_race.py"], "postgres"),
    "postgres frozen": (["tests/faults/test_postgres_frozen.py"], ""),
    "postgres faults": (["tests/faults/test_postgres_faults.py"], ""),
    "postgres maintain": (["tests/store/test_postgres_maintain.py"], ""),
    "postgres limits": (["tests/store/test_postgres_limits.py"], ""),
    "postgres locks": (["tests/store/test_postgres_locks.py"], ""),
    "postgres restored": (["tests/store/test_postgres_restored.py"], ""),
    "postgres transactions": (["tests/store/test_postgres_transactions.py"], ""),
    "completing": (["tests/worker/test_completing.py"], ""),
    "redis verbs": (VERBS, "redis"),
    "redis wire": (["tests/wire"], ""),
    "redis fence": (["tests/wire/test_fence.py"], ""),
    "redis crashes": (["tests/wire/test_crashes.py"], ""),
    "redis flows": (["tests/wire/test_flows.py"], ""),
    "redis deduplication": (["tests/wire/test_deduplication.py"], ""),
    "redis dependencies": (["tests/wire/test_dependencies.py"], "bullmq and not bullmq5"),
    "redis durability": (["tests/store/redis/test_durability.py"], ""),
    "redis batches": (["tests/store/redis/test_batches.py"], ""),
    "redis parked": (["tests/store/redis/test_parked.py"], ""),
    "redis arrivals": (["tests/store/redis/test_arrivals.py"], ""),
    "redis edges": (["tests/store/redis/test_next_edge.py"], ""),
    "redis library": (["tests/store/redis/test_library.py"], ""),
    "redis versions": (["tests/store/redis/test_redis_store.py"], "bullmq"),
    "sqlite verbs": (VERBS, "sqlite"),
    "sqlite matrix": (["tests/conformance/test_matrix.py"], "sqlite"),
    "simulation": (["tests/simulation/test_simulation.py"], "promises and memory"),
    "maintenance": (["tests/worker/test_maintenance.py"], ""),
    "sqlite disk": (["tests/store/test_sqlite_disk.py"], ""),
    "sqlite race": (["tests/conformance/test_race.py"], "sqlite"),
}
"""Parts of the suite: files, and what the names of the tests must hold."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    by: str
    """The test that failed; empty when the bug survived."""
    seconds: float
    error: str = ""


def main(words: list[str]) -> int:
    chosen = chosen_by(words)
    print(f"{len(chosen)} mutants, {AT_ONCE} at a time; first the suite without any", flush=True)
    for layer in dict.fromkeys(layer for mutant in chosen for layer in mutant.layers):
        status, output = _suite(ROOT, layer)
        if status != SURVIVED:
            print(f"{output}\nlayer {layer!r} fails without a mutant")
            return 2
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = [_show(verdict) for verdict in pool.map(judge, chosen)]
    survived = [v for v in verdicts if not v.by]
    print(f"{len(verdicts) - len(survived)} of {len(verdicts)} caught")
    for verdict in survived:
        print(f"NOT CAUGHT: {verdict.mutant.path}: {verdict.mutant.why} {verdict.error}")
    return 1 if survived else 0


def chosen_by(words: list[str]) -> list[Mutant]:
    """The mutants whose file or reason holds one of the words; all of them without any."""
    return [m for m in MUTANTS if not words or any(w in f"{m.file} {m.why}" for w in words)]


def judge(mutant: Mutant) -> Verdict:
    """Plant one bug and run its layers until one notices."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as folder:
        root = Path(folder)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, root / part)  # with what is compiled: it stays valid
        shutil.copy(ROOT / "pyproject.toml", root)
        try:
            mutant.apply(root)
            by = _noticed(root, mutant)
        except (RottenMutant, _Broken) as error:
            return Verdict(mutant, "", time.monotonic() - started, f"({error})")
    return Verdict(mutant, by, time.monotonic() - started)


class _Broken(Exception):
    """The mutant cannot even be collected, which proves nothing about the suite."""


def _noticed(root: Path, mutant: Mutant) -> str:
    looks = [mutant.look] if mutant.look else []
    for look in [*looks, ""]:
        for layer in mutant.layers:
            status, output = _suite(root, layer, look)
            if status == SURVIVED or (look and status == NONE_CHOSEN):
                continue
            if status != CAUGHT:
                raise _Broken(output[-500:])
            failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
            name = failed[0].partition("::")[2] if failed else layer
            return name.partition(" - ")[0] or f"collecting {layer}"
    return ""


def _suite(root: Path, layer: str, look: str = "") -> tuple[int, str]:
    """Run one layer of the suite that is in ``root``, or what of it has a word in its name."""
    files, store = LAYERS[layer]
    words = " and ".join(filter(None, (store, look)))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line"]
    command += ["--timeout=60", *files, *(["-k", words] if words else [])]
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CAUGHT, f"FAILED ::{layer} did not end within {LONGEST} s"
    return done.returncode, done.stdout + done.stderr


def _show(verdict: Verdict) -> Verdict:
    mutant = verdict.mutant
    mark = "caught" if verdict.by else "NOT CAUGHT"
    told = f"{mutant.path.relative_to('src/holdfast')}: {mutant.why}"
    print(
        f"{mark:10} {verdict.seconds:5.1f} s  {told:80} {verdict.by or verdict.error}", flush=True
    )
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
