"""The statements of the store, one file each, and the numbered migrations."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"\?(\d+)")


def _folder(name: str) -> dict[str, str]:
    found = files("holdfast.store.sqlite").joinpath(name).iterdir()
    return {
        entry.name.removesuffix(".sql"): entry.read_text("utf-8")
        for entry in found
        if entry.name.endswith(".sql")
    }


SOURCES = _folder("queries")
"""Every statement with its header, by name."""

MIGRATIONS = dict(sorted(_folder("migrations").items()))
"""Every migration by its numbered name, oldest first."""

_STATEMENTS = {name: _COMMENT.sub("", text).strip() for name, text in SOURCES.items()}


def statement(name: str) -> str:
    """Return one statement without its comments."""
    return _STATEMENTS[name]


@cache
def parameters(name: str) -> int:
    """Return how many parameters a statement has."""
    return max(int(number) for number in _PARAMETER.findall(statement(name)))


@cache
def repeated(name: str, rows: int, *, shared: int = 0) -> str:
    """Return a statement that inserts one row as one that inserts many.

    The parameters of the second row are numbered on from those of the first, and so forth; only
    the first ``shared`` ones are the same for all rows.
    """
    head, word, row = statement(name).partition("VALUES ")
    width = parameters(name) - shared

    def moved(by: int) -> str:
        return _PARAMETER.sub(lambda found: f"?{_moved(int(found[1]), by, shared)}", row)

    return head + word + ", ".join(moved(width * number) for number in range(rows))


def _moved(number: int, by: int, shared: int) -> int:
    return number if number <= shared else number + by
