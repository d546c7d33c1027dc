"""What several tests of the Redis store ask of their server."""

from __future__ import annotations

import subprocess

import pytest

from tests.servers import find_valkey


@pytest.fixture
def waits_for_disk() -> None:
    """The server under test can be asked to wait for its disk."""
    told = subprocess.run([find_valkey(), "--version"], capture_output=True, text=True, check=True)
    if "v=7.0" in told.stdout:
        pytest.skip("WAITAOF came with Redis 7.2")
