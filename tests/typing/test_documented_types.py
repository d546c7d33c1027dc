"""Every Python example of the documentation passes mypy and pyright in strict mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import tree

BLOCK = re.compile(r"^```python(?: (\S+))?\n(?:# (\w+\.py)\n)?(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").glob("*.md"))]

pytestmark = pytest.mark.slow


def _files(page: Path) -> dict[str, str]:
    """Return the Python files and examples of a page by name; fragments are not among them."""
    found = {}
    for number, (use, name, text) in enumerate(BLOCK.findall(page.read_text("utf-8"))):
        if use == "example":
            found[f"example_{number}.py"] = text
        elif use.startswith("file=") or name:
            file = use.removeprefix("file=") or name
            found[file] = text
    return found


FRAMEWORKS = {"django", "fastapi", "flask", "sqlalchemy"}
"""Pages of frameworks whose own types are not strict, or are not installed."""
EXAMPLES = {
    page.stem: files for page in PAGES if page.stem not in FRAMEWORKS and (files := _files(page))
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each page with its files."""
    root = tmp_path_factory.mktemp("documented")
    for page, files in EXAMPLES.items():
        (root / page).mkdir()
        for name, text in files.items():
            (root / page / name).write_text(text, "utf-8")
    return root


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_of_a_page_pass_mypy(folder: Path, page: str) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--config-file=", f"--cache-dir={folder / 'cache'}", *EXAMPLES[page]]
    environment = {"MYPYPATH": str(tree.PACKAGE.parent), "PATH": "/usr/bin:/bin"}

    done = subprocess.run(
        command, cwd=folder / page, capture_output=True, text=True, check=False, env=environment
    )

    assert 0 == done.returncode, done.stdout + done.stderr


def test_examples_of_every_page_pass_pyright(folder: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        "reportUnusedImport": False,
        "reportUnusedFunction": False,
        "extraPaths": [str(tree.PACKAGE.parent)],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    report = json.loads(done.stdout)
    wrong = [
        f"{Path(found['file']).relative_to(folder)}:"
        f"{found['range']['start']['line'] + 1}: {found['message']}"
        for found in report["generalDiagnostics"]
    ]
    assert [] == wrong, "\n".join(wrong)
    assert sum(map(len, EXAMPLES.values())) == report["summary"]["filesAnalyzed"]
