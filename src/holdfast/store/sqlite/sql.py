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
def repeated(name: str, rows: int) -> str:
    """Return a statement that inserts one row as one that inserts many.

    The parameters of the second row are numbered on from those of the first, and so forth.
    """
    head, word, row = statement(name).partition("VALUES ")
    width = max(int(number) for number in _PARAMETER.findall(row))

    def moved(by: int) -> str:
        return _PARAMETER.sub(lambda found: f"?{int(found[1]) + by}", row)

    return head + word + ", ".join(moved(width * number) for number in range(rows))
