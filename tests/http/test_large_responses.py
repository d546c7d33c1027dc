"""Large payloads and results are sent on as they are stored, and the loop stays free."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.model.policy import MEBIBYTE, Limits
from holdfast.store import MemoryStore
from tests.http.site import API, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.site import Site

LARGE = 15 * MEBIBYTE
PIECES = [b"[[]],", b'{"a":1},', b"1.10,", b'"\\u00e9",', '"é",'.encode()]


def array(piece: bytes, size: int = LARGE) -> bytes:
    return b"[" + piece * (size // len(piece)) + b"1]"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """The service over a store whose payloads may be as large as any."""
    app = Holdfast(store=MemoryStore(), limits=Limits(payload_bytes=16 * MEBIBYTE))
    async with running(app) as site:
        yield site


async def completed(site: Site, output: bytes, more: bytes = b"", **job: Any) -> str:
    """Complete a new job with this output and return its path."""
    await site.submit(**job)
    (claimed,) = await site.claim()
    path = f"{API}/jobs/{claimed['job_id']}"
    body = b'{"lease_token":"%s","output":%s%s}'
    raw = body % (claimed["lease_token"].encode(), output, more)
    reply = await site.post(f"{path}/complete", raw=raw)
    assert 200 == reply.status, reply.body
    return path


@pytest.mark.parametrize("piece", PIECES)
async def test_large_result_is_returned_as_it_was_given(site: Site, piece: bytes) -> None:
    output = array(piece)

    path = await completed(site, output)
    replies = [await site.get(f"{path}{what}") for what in ("/result", "", "/wait")]

    assert [200] * 3 == [reply.status for reply in replies]
    assert [True] * 3 == [b'"output":' + output in reply.body for reply in replies]


async def test_large_result_of_bytes_is_returned_as_base64(site: Site) -> None:
    text = base64.b64encode(bytes(range(256)) * 40_000)

    path = await completed(site, b'"%s"' % text, b',"output_encoding":"base64"')
    result = (await site.get(f"{path}/result")).json

    assert ("base64", text.decode()) == (result["output_encoding"], result["output"])


@pytest.mark.parametrize("piece", PIECES)
async def test_large_payload_is_returned_and_claimed_as_it_was_given(
    site: Site, piece: bytes
) -> None:
    payload = array(piece)

    reply = await site.post(f"{API}/jobs", raw=b'{"type":"a","payload":%s}' % payload)
    read = await site.get(f"{API}/jobs/{reply.json['job_id']}/payload")
    claim = await site.post(f"{API}/workers/claim", {"worker_id": "w"})

    assert [200, 200] == [read.status, claim.status]
    assert [True, True] == [b'"payload":' + payload in one.body for one in (read, claim)]


async def test_claim_of_many_large_payloads_keeps_the_loop_free(site: Site) -> None:
    body = b'{"type":"a","payload":%s}' % array(b'"%s",' % (b"a" * 1000))
    for _ in range(5):
        await site.post(f"{API}/jobs", raw=body)

    claims = [await site.claim(limit=10) for _ in range(4)]

    assert [2, 2, 1, 0] == [len(jobs) for jobs in claims]  # two fit into a response


async def test_claim_of_many_small_payloads_returns_them_all(site: Site) -> None:
    await site.post(f"{API}/jobs/batch", {"jobs": [{"type": "a", "payload": 1}] * 100})

    claimed = await site.claim(limit=100)

    assert 100 == len({job["job_id"] for job in claimed})


async def test_announcement_of_a_worker_is_bounded_in_bytes(site: Site) -> None:
    types = [f"{number:03}{'x' * 97}" for number in range(656)]

    fits = await site.post(f"{API}/workers/claim", {"worker_id": "w", "types": types[:655]})
    refused = await site.post(f"{API}/workers/claim", {"worker_id": "w", "types": types})

    assert [200, 400] == [fits.status, refused.status]
    (detail,) = refused.json["error"]["details"]
    assert "may have 65536 bytes together with queues, got 65607" in str(detail)
    assert "types" in str(detail)


async def test_results_of_dependencies_are_returned_as_they_were_given(site: Site) -> None:
    output = array(b"[[]],")
    path = await completed(site, output)
    await site.submit(depends_on=[path.rpartition("/")[2]])
    (job,) = await site.claim()

    reply = await site.post(
        f"{API}/jobs/{job['job_id']}/dependency-results", {"lease_token": job["lease_token"]}
    )

    assert b'"output":' + output in reply.body


async def test_page_of_results_keeps_the_loop_free(site: Site) -> None:
    output = array(b"[[]],", 16_000)
    await site.post(f"{API}/jobs/batch", {"jobs": [{"type": "a", "payload": 1}] * 400})
    for _ in range(4):
        for job in await site.claim(limit=100):
            raw = b'{"lease_token":"%s","output":%s}' % (job["lease_token"].encode(), output)
            await site.post(f"{API}/jobs/{job['job_id']}/complete", raw=raw)

    page = await site.get(f"{API}/jobs?limit=400")

    assert (200, 400) == (page.status, page.body.count(output))
