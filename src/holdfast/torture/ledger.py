"""Plain files outside the queue that record responses, effects and events.

Every line is one ``write`` to a file opened for appending: it survives the process that wrote
it, and a killed process never leaves half a line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.runtime.randomness import Randomness

RESPONSES, EFFECTS, EVENTS = "responses", "effects", "events"
ACCEPTED, DUPLICATE, CANCEL = "accepted", "duplicate", "cancel"
ALLOWED = "allowed"


class Ledger:
    """The file of one process; ``kind`` says what it records."""

    def __init__(self, folder: str, kind: str, name: str = "") -> None:
        name = name or f"{os.getpid()}-{Randomness().token()[:8]}"
        self.path = Path(folder) / f"{kind}-{name}"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *lines: str) -> None:
        """Append lines in one write."""
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


def read(folder: str, kind: str) -> Iterator[list[str]]:
    """Yield the words of every line of this kind, from all processes."""
    for path in sorted(Path(folder).glob(f"{kind}-*")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield line.split()


def allow(folder: str, share: float) -> None:
    """Set the share of all jobs that producers may have submitted by now."""
    new = Path(folder) / f"{ALLOWED}.new"
    new.write_text(f"{share:.6f}", "utf-8")
    new.replace(Path(folder) / ALLOWED)


def allowed(folder: str) -> float:
    """Return the share of all jobs that producers may have submitted by now."""
    return float((Path(folder) / ALLOWED).read_text("utf-8"))
