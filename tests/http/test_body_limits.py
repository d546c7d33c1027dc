"""Bodies at the documented limits are accepted, and slightly larger ones are refused by name."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.model.payload import MAX_RESULT
from holdfast.model.policy import MEBIBYTE, Limits
from holdfast.store import MemoryStore
from tests.http.site import API, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.site import Site

LARGEST = 16 * MEBIBYTE
EMOJI = "\N{SLIGHTLY SMILING FACE}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """The service over a store whose payloads may be as large as any."""
    app = Holdfast(store=MemoryStore(), limits=Limits(payload_bytes=LARGEST))
    async with running(app) as site:
        yield site


async def claimed(site: Site, **more: object) -> tuple[str, bytes]:
    """Return the path of a claimed job and its token."""
    await site.submit(**more)  # type: ignore[arg-type]  # fields of a submission
    (job,) = await site.claim()
    return f"{API}/jobs/{job['job_id']}", job["lease_token"].encode()


async def test_checkpoint_of_twelve_mebibytes_is_there_for_the_next_attempt(site: Site) -> None:
    path, token = await claimed(site)
    data = base64.b64encode(bytes(12 * MEBIBYTE))

    reply = await site.post(
        f"{path}/checkpoint", raw=b'{"lease_token":"%s","data":"%s"}' % (token, data)
    )

    assert (200, True) == (reply.status, reply.json["held"])
    await site.post(f"{path}/give-back", {"lease_token": token.decode()})
    (again,) = await site.claim()
    assert data == again["checkpoint"].encode()


@pytest.mark.parametrize("encoding", [b"json", b"base64"])
async def test_result_at_its_limit_is_stored_and_one_above_is_refused(
    site: Site, encoding: bytes
) -> None:
    path, token = await claimed(site)
    body = b'{"lease_token":"%s","output_encoding":"%s","output":"%s"}'
    most = MAX_RESULT - 2 if encoding == b"json" else (MAX_RESULT - 21) // 4 * 4

    above = await site.post(f"{path}/complete", raw=body % (token, encoding, b"a" * (most + 4)))
    at_limit = await site.post(f"{path}/complete", raw=body % (token, encoding, b"a" * most))

    assert (400, {"output": "TOO_LARGE"}) == (above.status, above.fields)
    assert (200, "COMPLETED") == (at_limit.status, at_limit.json["state"])
    stored = (await site.get(f"{path}/result")).json
    assert "a" * most == stored["output"]


async def test_spawned_payload_at_its_limit_is_stored_as_it_is_and_one_above_is_refused(
    site: Site,
) -> None:
    path, token = await claimed(site)
    body = b'{"lease_token":"%s","job":{"type":"b","payload":[1.10,"%s"]}}'
    most = LARGEST - len('[1.10,""]')

    above = await site.post(f"{path}/spawn", raw=body % (token, b"a" * (most + 1)))
    at_limit = await site.post(f"{path}/spawn", raw=body % (token, b"a" * most))

    assert (400, {"payload": "TOO_LARGE"}) == (above.status, above.fields)
    assert 201 == at_limit.status
    (child,) = await site.store.get([at_limit.json["job_id"]])
    assert child is not None
    assert (LARGEST, b"[1.10,") == (len(child.payload), child.payload[:6])


async def test_longest_texts_of_a_worker_are_stored(site: Site) -> None:
    path, token = await claimed(site)
    lease = {"lease_token": token.decode()}
    texts = {f"{EMOJI * 126}{n:02}": EMOJI * 1024 for n in range(64)}

    progress = {"percent": 1, "message": EMOJI * 8192}
    log = {"message": EMOJI * 8192, "fields": texts}
    failure = {"message": EMOJI * 4096, "stack_trace": EMOJI * 16_384, "context": texts}
    replies = [
        await site.post(f"{path}/{what}", {**lease, **more})
        for what, more in (("progress", progress), ("log", log), ("fail", failure))
    ]

    assert [200] * 3 == [reply.status for reply in replies]
    (line,) = (await site.get(f"{path}/logs")).json["logs"]
    assert texts == line["fields"]


async def test_thousand_longest_leases_are_renewed_at_once(site: Site) -> None:
    leases = [{"job_id": EMOJI * 252 + f"{n:04}", "lease_token": EMOJI * 256} for n in range(1000)]

    reply = await site.post(f"{API}/workers/heartbeat", {"leases": leases})

    assert (200, 1000) == (reply.status, len(reply.json["leases"]))
