"""The Lua scripts: each verb's file with the shared parts its header names.

Making the functions of a script takes longer than a lone job's work. So verbs that are called for
every job are also functions of a library, which a server makes once.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources

HOT = ("add", "claim", "swap")
"""The verbs of the library."""

# Answers must get through to a full server: only new work needs room.
_NEEDING_ROOM = "add"
_FREEING = "#!lua flags=allow-oom"
# Making a function costs a search for each variable it shares with its surroundings, among all
# those that are shared there; but none for what the surroundings share already.
_INSIDE, _OUTSIDE = "return (function()", "end)()\n"
_NAME = "@library@"
_NEEDS = re.compile(r"^-- needs: (.*)$", re.MULTILINE)


class Script:
    """One script: its text, and the digest by which a server that knows it is told to run it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _assembled(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Library:
    """The hot verbs as functions; its name tells its content, so versions live side by side."""

    def __init__(self) -> None:
        text = _together()
        name = f"holdfast_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.text = f"#!lua name={name}\n" + text.replace(_NAME, name)
        self.functions = {verb: f"{name}_{verb}" for verb in HOT}


@functools.cache
def script(name: str) -> Script:
    """Return the script of a verb."""
    return Script(name)


@functools.cache
def library() -> Library:
    """Return the library of the hot verbs."""
    return Library()


def _assembled(name: str) -> str:
    body = _read(f"{name}.lua")
    parts = _parts(body)
    first = [] if name == _NEEDING_ROOM else [_FREEING]
    if name in HOT:
        body = f"{body}\nbegin(given)\nreturn main()\n{_OUTSIDE}"
    elif parts:
        body = f"begin(given)\n{body}{_OUTSIDE}"
    return "\n".join([*first, "local given = ARGV", *_shared(parts), body])


def _together() -> str:
    bodies = {verb: _read(f"{verb}.lua") for verb in HOT}
    parts = dict.fromkeys(part for body in bodies.values() for part in _parts(body))
    return "\n".join([*_shared(list(parts)), *map(_function, bodies.items()), _OUTSIDE])


def _function(verb: tuple[str, str]) -> str:
    name, body = verb
    flags = "" if name == _NEEDING_ROOM else "'allow-oom'"
    return (
        f"do\n{body}\n"
        f"redis.register_function{{function_name = '{_NAME}_{name}', flags = {{{flags}}},\n"
        f"callback = function(_, args)\nbegin(args)\nreturn main()\nend}}\nend"
    )


def _parts(body: str) -> list[str]:
    needs = _NEEDS.search(body)
    return needs[1].split() if needs else []


def _shared(parts: list[str]) -> list[str]:
    texts = [_read(f"lib/{part}.lua") for part in parts]
    if texts:
        texts[0] += _INSIDE
    return texts


def _read(path: str) -> str:
    folder = resources.files("holdfast.store.redis") / "scripts"
    return folder.joinpath(*path.split("/")).read_text("utf-8")
