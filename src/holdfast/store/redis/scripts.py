"""The Lua scripts: each verb's file with the shared parts its header names."""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources

# Answers must get through to a full server: only new work needs room.
_FREEING = "#!lua flags=allow-oom"
# Making a function costs a search for each variable it shares with its surroundings, among all
# those that are shared there; but none for what the surroundings share already.
_INSIDE, _OUTSIDE = "return (function()", "end)()\n"
_NEEDS = re.compile(r"^-- needs: (.*)$", re.MULTILINE)


class Script:
    """One script: its text, and the digest by which a server that knows it is told to run it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _assembled(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@functools.cache
def script(name: str) -> Script:
    """Return the script of a verb."""
    return Script(name)


def _assembled(name: str) -> str:
    folder = resources.files("holdfast.store.redis") / "scripts"
    body = (folder / f"{name}.lua").read_text("utf-8")
    needs = _NEEDS.search(body)
    parts = needs[1].split() if needs else []
    library = [(folder / "lib" / f"{part}.lua").read_text("utf-8") for part in parts]
    first = [] if name == "add" else [_FREEING]
    if library:
        library[0] += _INSIDE
        body += _OUTSIDE
    return "\n".join([*first, *library, body])
