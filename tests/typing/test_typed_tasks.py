"""A wrong argument to a task is an error in the editor, a right one is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SAMPLES = HERE / "samples"
SOURCE = HERE.parents[1] / "src"
MYPY_ERROR = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+): error: (?P<message>.*)$", re.MULTILINE)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pyright() -> dict[str, dict[int, str]]:
    """What pyright in strict mode reports, by file name and line."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", "pyrightconfig.json"]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert 3 == report["summary"]["filesAnalyzed"], done.stdout + done.stderr
    return _by_file(
        (found["file"], found["range"]["start"]["line"] + 1, found["message"])
        for found in report["generalDiagnostics"]
    )


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy in strict mode reports about the samples, by file name and line."""
    cache = tmp_path_factory.mktemp("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--config-file=", f"--cache-dir={cache}", "right.py", "wrong.py"]
    environment = {"MYPYPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd=SAMPLES, capture_output=True, text=True, check=False, env=environment
    )
    found = MYPY_ERROR.finditer(done.stdout)
    return _by_file((m["path"], int(m["line"]), m["message"]) for m in found)


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_right_arguments_are_accepted(checker: str, request: pytest.FixtureRequest) -> None:
    reported = request.getfixturevalue(checker)

    assert {} == reported.get("right.py", {})


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_every_wrong_argument_is_an_error(checker: str, request: pytest.FixtureRequest) -> None:
    reported = request.getfixturevalue(checker)
    lines = (SAMPLES / "wrong.py").read_text("utf-8").splitlines()

    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]

    assert wrong == sorted(reported["wrong.py"])


def _by_file(reports: object) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for path, line, message in reports:  # type: ignore[attr-defined]  # a generator of triples
        found.setdefault(Path(path).name, {})[line] = message
    return found
