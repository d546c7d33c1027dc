"""The service, running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES
from tests.http.site import Site, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """The service over a store in memory."""
    async with running() as site:
        yield site


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
async def any_site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The service over each store in turn."""
    with PLACES[request.param](request) as place:
        app = Holdfast(place.url) if place.is_shared else Holdfast(store=place.open())
        async with running(app) as site:
            yield site
