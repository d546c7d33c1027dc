"""A store whose driver is not installed says what to install."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OPENING = """
import sys

for name in sys.argv[2:]:
    sys.modules[name] = None

from holdfast.store import open_store

try:
    open_store(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("postgresql://localhost/db", "psycopg", "postgres"),
        ("redis://localhost", "redis", "redis"),
        ("redis://localhost", "hiredis", "redis"),
    ],
)
def test_a_missing_driver_is_named_with_the_line_that_installs_it(
    url: str, package: str, extra: str
) -> None:
    command = [sys.executable, "-c", OPENING, url, package]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    told = done.stdout

    assert "MissingExtraError" in told
    assert f"package {package!r} is not installed: pip install 'holdfast-queue[{extra}]'" in told
