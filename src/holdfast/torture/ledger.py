"""Plain files outside the queue that remember what was told and done.

Every line is one ``write`` to a file opened for appending: it survives the process that wrote
it, and a process that is killed leaves none half written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.runtime.randomness import Randomness

ALLOWED = "allowed"
ACCEPTED, DUPLICATE, CANCEL = "accepted", "duplicate", "cancel"


class Ledger:
    """One process's own file."""

    def __init__(self, folder: str, kind: str, name: str = "") -> None:
        name = name or f"{os.getpid()}-{Randomness().token()[:8]}"
        self.path = Path(folder) / f"{kind}-{name}"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *lines: str) -> None:
        """Append lines in one step."""
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


def read(folder: str, kind: str) -> Iterator[list[str]]:
    """Read the words of every line that any process wrote."""
    for path in sorted(Path(folder).glob(f"{kind}-*")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield line.split()


def allow(folder: str, share: float) -> None:
    """Say which share of all jobs producers may have submitted by now."""
    draft = Path(folder) / f"{ALLOWED}.new"
    draft.write_text(f"{share:.6f}", "utf-8")
    draft.replace(Path(folder) / ALLOWED)


def allowed(folder: str) -> float:
    """Which share of all jobs may have been submitted by now."""
    return float((Path(folder) / ALLOWED).read_text("utf-8"))
