"""The page about errors names every code in the code, and no other."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.api.errors import STATUS_OF
from holdfast.operations.explain import Cause
from tests.architecture import tree

PAGE = (tree.ROOT / "docs" / "reference-errors.md").read_text("utf-8")
CODE = re.compile(r"[A-Z][A-Z_]{2,}")
FAULTS = {"Fault": 1, "_fault": 1, "_not_json": 0, "PayloadError": 0}
"""Functions with the code of a fault among their arguments, and its place."""
FAILURES = {"system_failure": 1}
ELSEWHERE = {"APIError", "RequestError", "Mishap"}
"""Calls whose code is one of the service or of the demonstration."""
SUBMODULES = ("cli/demo/", "torture/")
IN_SERVERS = {"PENDING_CHILDREN", "STALLED"}
"""Codes that Lua scripts return, or that stand in a condition."""


def _documented(title: str) -> set[str]:
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


@functools.cache
def _modules() -> list[ast.Module]:
    paths = sorted(tree.PACKAGE.rglob("*.py"))
    wanted = [
        path for path in paths if not str(path.relative_to(tree.PACKAGE)).startswith(SUBMODULES)
    ]
    return [ast.parse(path.read_text("utf-8")) for path in wanted]


@functools.cache
def _constants() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for module in _modules():
        for node in module.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    found.setdefault(name, set()).add(text)
    return found


def _codes(node: ast.expr | None) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if CODE.fullmatch(text):
            yield text
        case ast.Name(id=name):
            yield from (text for text in _constants().get(name, ()) if CODE.fullmatch(text))


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for module in _modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                yield getattr(node.func, "id", getattr(node.func, "attr", "")), node


def _argument(call: ast.Call, place: int) -> ast.expr | None:
    return call.args[place] if len(call.args) > place else None


def _of_faults() -> set[str]:
    return {
        code
        for name, call in _calls()
        if name in FAULTS
        for code in _codes(_argument(call, FAULTS[name]))
    }


def _of_failures() -> set[str]:
    found = set(IN_SERVERS)
    for name, call in _calls():
        if name in FAILURES:
            found.update(_codes(_argument(call, FAILURES[name])))
        elif name not in ELSEWHERE:
            for keyword in call.keywords:
                found.update(_codes(keyword.value) if keyword.arg == "code" else ())
    return found


def test_faults_are_those_of_the_code() -> None:
    assert len(_of_faults()) > 20
    assert _of_faults() == _documented("Faults")


def test_failures_are_those_of_the_code() -> None:
    assert len(_of_failures()) > 20
    assert _of_failures() == _documented("Failures of jobs") - {"HTTP_500"}


def test_codes_of_the_service_have_their_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)

    assert STATUS_OF == {code: int(status) for code, status in rows}


def test_every_exception_is_named() -> None:
    public = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }

    assert public - {"HoldfastError"} == _documented("Python exceptions")


def test_every_cause_of_a_wait_is_named() -> None:
    assert set(Cause) == _documented("Reasons of `explain`")


@pytest.mark.parametrize("code", ["NO_SUCH_CODE"])
def test_a_code_that_nobody_uses_would_be_noticed(code: str) -> None:
    assert code not in _of_faults() | _of_failures()
