"""The dashboard, running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES
from tests.dashboard.visitor import Guest, dashboard_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.site import Site


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """The service and its dashboard over a store in memory."""
    async with dashboard_site() as site:
        yield site


@pytest.fixture
def guest(site: Site) -> Guest:
    """Someone's browser."""
    return Guest(site)


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
async def any_site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The service and its dashboard over each store in turn."""
    with PLACES[request.param](request) as place:
        app = Holdfast(place.url) if place.is_shared else Holdfast(store=place.open())
        async with dashboard_site(app) as site:
            yield site
