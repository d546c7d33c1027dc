"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src/holdfast")


@dataclass(frozen=True)
class Mutant:
    """A bug: in one file, one piece of text becomes another."""

    file: str
    old: str
    new: str
    why: str
    layers: tuple[str, ...]
    """Which parts of the suite look for it, the likeliest first."""
    look: str = ""
    """A word in the names of the tests that should notice: they are tried before all others."""

    @property
    def path(self) -> Path:
        return PACKAGE / self.file

    def apply(self, root: Path) -> None:
        """Plant the bug below ``root``; a text that is not there exactly once is an error."""
        target = root / self.path
        text = target.read_text("utf-8")
        found = text.count(self.old)
        if found != 1:
            raise RottenMutant(f"{self.path}: {found} times in the file: {self.old!r}")
        target.write_text(text.replace(self.old, self.new), "utf-8")


class RottenMutant(Exception):
    """The code has moved on: the mutant must follow it."""
