"""Every promise on the page about trust names tests that exist, and says what it leaves out."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.architecture import tree
from tests.proofs import test_arriving, test_lease

PAGE = (tree.ROOT / "docs" / "trust.md").read_text("utf-8")
PROMISES = {
    int(number): text
    for number, text in re.findall(
        r"^\*\*P(\d+)\. (.*?)(?=^\*\*P\d+\. |^## )", PAGE, re.MULTILINE | re.DOTALL
    )
}
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
MUTANTS = {"test_lease.py": test_lease.MUTANTS, "test_arriving.py": test_arriving.MUTANTS}


@functools.cache
def _tests_of(file: str) -> frozenset[str]:
    text = (tree.ROOT / file).read_text("utf-8")
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.parse(text).body if isinstance(node, functions))


def test_every_promise_is_there_once() -> None:
    assert list(range(1, 29)) == sorted(PROMISES)
    assert 28 == len(re.findall(r"^\*\*P\d+\. ", PAGE, re.MULTILINE))


@pytest.mark.parametrize("number", PROMISES)
def test_promise_names_what_shows_it_and_what_it_leaves_out(number: int) -> None:
    said = PROMISES[number]

    assert 1 == said.count("\n- shown by `tests/")
    assert 1 == said.count("\n- not promised: ")


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert name in _tests_of(file)


def test_bugs_that_the_page_names_are_recreated() -> None:
    told = re.findall(r"\| `(test_\w+\.py)`: (.*) \|", PAGE)

    assert len(told) >= 19
    assert [] == [(file, bug) for file, bug in told if bug not in MUTANTS[file]]


def test_commands_that_the_page_names_exist() -> None:
    targets = set(re.findall(r"`make (\w+)", PAGE))

    makefile = (tree.ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert {"test", "torture", "simulate", "fuzz", "mutants"} == targets
    assert targets <= set(phony.split())
