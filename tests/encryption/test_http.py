"""The service over an encrypted store, with and without its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreError
from holdfast.store import RecordWrite
from tests.http.site import API, running

if TYPE_CHECKING:
    from holdfast.encryption import KeyRing
    from tests.conformance.stores import Place


@pytest.mark.req("M-12")
async def test_worker_over_http_gets_a_decrypted_payload_or_none(
    shared_place: Place, ring: KeyRing
) -> None:
    async with running(Holdfast(shared_place.url, keys=ring)) as site:
        first = await site.submit("a", {"n": 1})
        second = await site.submit("a", {"n": 2})
        (claimed,) = await site.claim()
        assert (first, {"n": 1}) == (claimed["job_id"], claimed["payload"])

    async with running(Holdfast(shared_place.url)) as site:
        without = await site.claim()
        job = (await site.get(f"{API}/jobs/{second}")).json

    assert [] == without
    assert ("FAILED", "KEY_MISSING") == (job["state"], job["failure"]["code"])
    assert "encrypted with key 'k1'" in job["failure"]["message"]


@pytest.mark.req("A-20", "M-12")
async def test_service_without_the_keys_does_not_start(shared_place: Place, ring: KeyRing) -> None:
    async with running(Holdfast(shared_place.url, keys=ring)) as site:
        await site.key("admin")

    with pytest.raises(StoreError, match="the API keys are encrypted"):
        async with running(Holdfast(shared_place.url)):
            pass


@pytest.mark.req("A-20")
async def test_damaged_api_key_does_not_open_the_service() -> None:
    async with running() as site:
        await site.store.keep([RecordWrite(kind="key", key="k", data=b"{{")])
        site.forget_keys()

        assert 401 == (await site.get(f"{API}/jobs")).status
