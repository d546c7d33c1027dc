"""Every example of the testing page runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers import Postgres

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```(?:python|ini)\n# ([\w.]+)\n(.*?)```", re.DOTALL)


@pytest.mark.postgres
def test_the_examples_of_the_testing_page_pass(tmp_path: Path, postgres_server: Postgres) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "testing.md").read_text("utf-8"))
    for name, text in blocks:
        (tmp_path / name).write_text(text, "utf-8")

    done = subprocess.run(
        [
            sys.executable,
            *(
                "-m",
                "pytest",
                "-q",
                "-p",
                "pytest_asyncio.plugin",
                "-p",
                "holdfast.testing.pytest_plugin",
            ),
        ],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "DATABASE_URL": postgres_server.dsn,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "9 passed" in done.stdout, done.stdout
    assert 9 == len(blocks)
    assert not (tmp_path / "holdfast.db").exists()
