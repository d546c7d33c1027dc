"""Python environments for the queues that holdfast is compared with."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def python_with(
    packages: Sequence[str], *, variable: str, folder: Path, install: bool
) -> str | None:
    """Return a Python that has the packages, or None: the benchmark then runs without them.

    The variable names one that exists already; else one is made in the folder.
    """
    if given := os.environ.get(variable):
        return given
    if not install:
        print(f"without {', '.join(packages)}: ${variable} names no Python that has them")
        return None
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=False)
    if done.returncode:
        print(f"without {', '.join(packages)}: pip cannot install them")
        return None
    return python
