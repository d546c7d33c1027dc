"""The Lua scripts: each verb's file after the shared parts that its header names.

Creating the functions of a script takes longer than the work for a single job. So the verbs that
are called for every job are also functions of a library, which a server loads once.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources

FREQUENT = ("add", "claim", "swap")
"""The verbs of the library."""

# A full server must still accept answers: only new jobs need memory.
_NEEDS_MEMORY = "add"
_ALLOW_OOM = "#!lua flags=allow-oom"
# Creating a closure costs a search for each captured variable of the enclosing function, among all
# its captured variables; but none for those that the enclosing function captured itself.
_OPEN, _CLOSE = "return (function()", "end)()\n"
_NAME = "@library@"
_PROBE = "probe"
_NEEDS = re.compile(r"^-- needs: (.*)$", re.MULTILINE)


class Script:
    """One script: its text, and the digest by which a server that has it runs it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _script_text(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Library:
    """The frequent verbs as functions; the name is a digest, so that versions can coexist."""

    def __init__(self) -> None:
        text = _library_text()
        name = f"holdfast_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.text = f"#!lua name={name}\n" + text.replace(_NAME, name)
        self.functions = {verb: f"{name}_{verb}" for verb in FREQUENT}
        self.probe = f"{name}_{_PROBE}"


@functools.cache
def script(name: str) -> Script:
    """Return the script of a verb."""
    return Script(name)


@functools.cache
def library() -> Library:
    """Return the library of the frequent verbs."""
    return Library()


def _script_text(name: str) -> str:
    body = _read(f"{name}.lua")
    text = with_parts(f"{body}\nreturn main()\n" if name in FREQUENT else body)
    return text if name == _NEEDS_MEMORY else f"{_ALLOW_OOM}\n{text}"


def with_parts(body: str) -> str:
    """Return the text of a script: the shared parts that its header names, then its body."""
    parts = _shared(_parts(body))
    return "\n".join(["local given = ARGV", *parts, f"begin(given)\n{body}{_CLOSE}"])


def _library_text() -> str:
    bodies = {verb: _read(f"{verb}.lua") for verb in FREQUENT}
    parts = dict.fromkeys(part for body in bodies.values() for part in _parts(body))
    probe = (
        f"redis.register_function{{function_name = '{_NAME}_{_PROBE}', flags = {{'no-writes'}},\n"
        "callback = function() return 1 end}"
    )
    return "\n".join([*_shared(list(parts)), *map(_function, bodies.items()), probe, _CLOSE])


def _function(verb: tuple[str, str]) -> str:
    name, body = verb
    flags = "" if name == _NEEDS_MEMORY else "'allow-oom'"
    return (
        f"do\n{body}\n"
        f"redis.register_function{{function_name = '{_NAME}_{name}', flags = {{{flags}}},\n"
        f"callback = function(_, args)\nbegin(args)\nreturn main()\nend}}\nend"
    )


def _parts(body: str) -> list[str]:
    needs = _NEEDS.search(body)
    return needs[1].split() if needs else []


def _shared(parts: list[str]) -> list[str]:
    first, *others = [_read(f"lib/{part}.lua") for part in parts]
    return [first + _OPEN, *others]


def _read(path: str) -> str:
    folder = resources.files("holdfast.store.redis") / "scripts"
    return folder.joinpath(*path.split("/")).read_text("utf-8")
