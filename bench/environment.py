"""Python environments for the queues that holdfast is compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def python_with(
    packages: Sequence[str],
    *,
    variable: str,
    folder: Path,
    install: bool,
    needs: tuple[int, int] = (3, 11),
) -> str | None:
    """Return a Python that has the packages, or None: the benchmark then runs without them.

    The variable names one that exists already; else one is made in the folder.
    """
    if given := os.environ.get(variable):
        return given
    if not install:
        print(f"without {', '.join(packages)}: ${variable} names no Python that has them")
        return None
    if not made_environment(folder, needs):
        print(f"without {', '.join(packages)}: no Python {needs[0]}.{needs[1]} on the path")
        return None
    python = str(folder / "bin" / "python")
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=False)
    if done.returncode:
        print(f"without {', '.join(packages)}: pip cannot install them")
        return None
    return python


def made_environment(folder: Path, needs: tuple[int, int]) -> bool:
    """Make an environment with a Python of at least this version; return whether there is one."""
    interpreter = _interpreter(needs)
    if interpreter is not None:
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    return interpreter is not None


def _interpreter(needs: tuple[int, int]) -> str | None:
    """Return the running Python, or a newer one on the path."""
    if sys.version_info >= needs:
        return sys.executable
    newer = [f"python{needs[0]}.{minor}" for minor in range(needs[1], needs[1] + 4)]
    for program in filter(None, map(shutil.which, newer)):
        if subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
            return program
    return None
