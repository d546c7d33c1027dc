"""Fixtures for pytest, which loads them when holdfast is installed.

Name the app in the configuration, ``holdfast_app = "shop.jobs:app"``, or define a fixture
``holdfast_app`` that returns it. Then ``holdfast_sandbox`` is that app in a sandbox.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing import Sandbox


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting ``holdfast_app`` to the configuration."""
    parser.addini("holdfast_app", "the app for holdfast_sandbox, as module:name", default="")


@pytest.fixture
def holdfast_app(pytestconfig: pytest.Config) -> Holdfast:
    """The app named in the configuration; override this fixture to use another app."""
    name = pytestconfig.getini("holdfast_app")
    if not name:
        raise pytest.UsageError(
            'holdfast_app is not set: add holdfast_app = "module:name" to the pytest configuration,'
            " or define a fixture holdfast_app that returns the app"
        )
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"holdfast_app must name an app, got {name!r}: {error}") from error
    app: Holdfast = found
    return app


@pytest.fixture
def holdfast_sandbox(holdfast_app: Holdfast) -> Iterator[Sandbox]:
    """The app in a sandbox: jobs in memory, a clock that the test moves, a fixed seed."""
    from holdfast.testing import Sandbox

    with Sandbox(holdfast_app) as sandbox:
        yield sandbox
