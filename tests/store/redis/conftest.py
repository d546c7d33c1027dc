"""Requirements of Redis store tests on their server."""

from __future__ import annotations

import subprocess

import pytest

from tests.servers import find_valkey


@pytest.fixture
def waits_for_disk() -> None:
    """Skip on servers without WAITAOF."""
    version = subprocess.run(
        [find_valkey(), "--version"], capture_output=True, text=True, check=True
    )
    if "v=7.0" in version.stdout:
        pytest.skip("WAITAOF came with Redis 7.2")
