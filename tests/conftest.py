"""What every test can use: requirement marks and real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import servers
from tests.processes import give_children_the_interrupt
from tests.requirements import complaint

if TYPE_CHECKING:
    from collections.abc import Iterator

give_children_the_interrupt()
settings.register_profile("holdfast", deadline=None)  # a busy machine is not a bug
settings.load_profile("holdfast")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    complaints = [text for item in items if (text := complaint(item))]
    if complaints:
        raise pytest.UsageError("\n".join(complaints))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Postgres | servers.ExternalPostgres]:
    """One PostgreSQL for the whole run. A test that kills servers starts its own."""
    with servers.running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[servers.Valkey]:
    """One Valkey (or Redis) for the whole run. A test that kills servers starts its own."""
    with servers.Valkey() as server:
        yield server
