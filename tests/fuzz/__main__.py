"""Fuzz every decoder, a million executions in all, guided by coverage.

``python -m tests.fuzz [--runs N] [TARGET...]``: N executions, shared among the targets.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.targets import SEEDS, TARGETS

ROOT = Path(__file__).resolve().parents[2]
RUNS = 1_000_000
SHARES = {"config_files": 0.1, "store_urls": 0.3}
"""Targets that take a millisecond per execution get less than an equal share."""
MAX_INPUT = 512
MAX_SECONDS = 600
"""The time limit of one target."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="TARGET")
    options = parser.parse_args(arguments)
    chosen = options.targets or list(TARGETS)
    total_share = sum(SHARES.get(name, 1.0) for name in chosen)
    done, broken = 0, []
    for name in chosen:
        runs = math.ceil(options.runs * SHARES.get(name, 1.0) / total_share)
        runs, output = fuzz(name, runs, options.seed)
        done += runs
        if output:
            broken.append(name)
            print(output)
    print(f"{done} executions of {len(chosen)} decoders, {len(broken)} with an uncaught error")
    return 1 if broken or done < options.runs else 0


def fuzz(name: str, runs: int, seed: int) -> tuple[int, str]:
    """Run one target in a new process; return the number of executions and the error output."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        for number, content in enumerate(SEEDS.get(name, ())):
            Path(folder, str(number)).write_bytes(content)
        command = [sys.executable, "-m", "tests.fuzz.one", name, f"-runs={runs}", f"-seed={seed}"]
        command += [f"-max_len={MAX_INPUT}", f"-max_total_time={MAX_SECONDS}"]
        command += [f"-artifact_prefix={folder}/", "-timeout=10", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = done.stderr + done.stdout
    counted = re.findall(r"(?:Done (\d+) runs|#(\d+)\s)", output)
    executed = max((int(a or b) for a, b in counted), default=0)
    taken = time.monotonic() - started
    mark = "ok" if done.returncode == 0 else "BROKEN"
    print(f"{mark:7} {executed:9} executions in {taken:5.1f} s  {name}", flush=True)
    return executed, "" if done.returncode == 0 else output[-4000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
