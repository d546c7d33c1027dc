"""The service, running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.http.site import Site, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """The service over a store in memory."""
    async with running() as site:
        yield site
