"""Tests wait for events, not for time, and use what others may use; exceptions have a reason."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import tree

VIRTUAL = tree.ROOT / "tests" / "simulation"
"""Where time is virtual and sleeping costs none."""
OWN = {"self", "cls"}
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace", "_value_"}
"""Names of the standard library that begin with an underscore and are documented."""
MARK = re.compile(r"#\s*(noqa|type:\s*ignore)[^#]*")

FILES = sorted((tree.ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=tree.relative)
def test_sleep_or_private_attribute_has_a_reason(path: Path) -> None:
    source = path.read_text("utf-8")
    reasons = _reasons(source)
    nodes = list(ast.walk(ast.parse(source)))
    lines = {node.lineno for node in _private_attributes(nodes)}
    if VIRTUAL not in path.parents:
        lines |= {node.lineno for node in _sleeps(nodes)}

    bare = sorted(line for line in lines if not {line, line - 1} & reasons)

    assert [] == bare, "say on the line, or above it, why there is no other way"


def _reasons(source: str) -> set[int]:
    """Return the lines that hold a comment for a reader, not only one for a tool."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    return {token.start[0] for token in comments if MARK.sub("", token.string).strip()}


def _sleeps(nodes: list[ast.AST]) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep"):
            (seconds,) = node.args
            if ast.unparse(seconds) != "0":
                yield node


def _private_attributes(nodes: list[ast.AST]) -> Iterator[ast.Attribute]:
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and node.attr not in PUBLIC
            and ast.unparse(node.value) not in {*OWN, "super()"}
        ):
            yield node
