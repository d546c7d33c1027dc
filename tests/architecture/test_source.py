"""Rules for source files that no linter knows."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.architecture import tree

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_FILE = 400
LONGEST_MODULE_DOCSTRING = 5
UNFINISHED = re.compile(r"\b(?:TODO|FIXME)\b")
# First folders of paths that exist on one person's machine only.
MACHINES = ("root", "home", "Users", "work", "workspace", "builds")
MACHINE_PATH = re.compile(rf"(?<![\w.~}})*-])/(?:{'|'.join(MACHINES)})/\w|[A-Z]:\\Users\\")


@pytest.mark.parametrize("path", tree.public_modules(), ids=tree.relative)
def test_public_module_says_in_a_few_lines_why_it_exists(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))

    assert docstring, f"{tree.relative(path)} has no docstring"
    assert len(docstring.splitlines()) <= LONGEST_MODULE_DOCSTRING


def test_no_source_file_is_too_long() -> None:
    lengths = {
        tree.relative(path): len(path.read_text("utf-8").splitlines())
        for path in tree.sources(".py", ".sql", ".lua", ".js")
    }

    assert {} == {name: length for name, length in lengths.items() if length > LONGEST_FILE}


def test_no_two_classes_of_the_library_share_a_name() -> None:
    homes: dict[str, set[str]] = {}
    for path in tree.sources(".py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(tree.relative(path))

    assert {} == {name: found for name, found in homes.items() if len(found) > 1}


def test_nothing_in_the_package_is_left_for_later() -> None:
    assert [] == _lines_with(UNFINISHED, tree.sources(*tree.TEXT))


def test_no_file_mentions_a_path_of_one_machine() -> None:
    assert [] == _lines_with(MACHINE_PATH, tree.written_files())


@pytest.mark.parametrize("folder", ["root", "home", "work"])
def test_machine_paths_are_recognised(folder: str) -> None:
    assert MACHINE_PATH.search(f"see /{folder}/me/notes")
    assert not MACHINE_PATH.search(f"GET /api/{folder}/1 and docs/{folder}/x")


def _lines_with(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{tree.relative(path)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
