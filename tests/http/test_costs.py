"""What a request may cost: hostile bodies keep the loop free and get a short answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.http.site import API, LONGEST_STEP, Site, watched

if TYPE_CHECKING:
    from collections.abc import Callable

MEBIBYTE = 1 << 20
UNKNOWN = b",".join(b'"%d":1' % n for n in range(1_300_000))
ONES = b",".join([b"1"] * 400_000)
JOB = b'{"type":"a","payload":%s}'
LISTS = b"[" + b"[]," * (5 * MEBIBYTE) + b"1]"
TEXTS = b"[" + b'"",' * (5 * MEBIBYTE) + b'""]'
TOKEN = b'{"lease_token":"x",'
HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "fields of a submission": ("jobs", lambda: b'{"type":"a","payload":1,' + UNKNOWN + b"}"),
    "fields of a batch": ("jobs/batch", lambda: b'{"jobs":[],' + UNKNOWN + b"}"),
    "fields of a job in a batch": (
        "jobs/batch",
        lambda: b'{"jobs":[{"type":"a","payload":1,' + UNKNOWN + b"}]}",
    ),
    "jobs of a batch": ("jobs/batch", lambda: b'{"jobs":[' + b",".join([b"{}"] * 900_000) + b"]}"),
    "fields of a search": ("jobs/search", lambda: b"{" + UNKNOWN[:900_000] + b":1}"),
    "fields of many": ("jobs/search", lambda: b"{" + UNKNOWN + b"}"),
    "states": ("jobs/search", lambda: b'{"states":[' + ONES + b"]}"),
    "types": ("jobs/search", lambda: b'{"types":[' + ONES.replace(b"1", b'"1"') + b"]}"),
    "ids": ("jobs/cancel", lambda: b'{"job_ids":[' + ONES + b"]}"),
    "fields of a claim": (
        "workers/claim",
        lambda: b'{"worker_id":"w",' + UNKNOWN[:900_000] + b":1}",
    ),
    "a payload of lists": ("jobs", lambda: JOB % (b"[" + b"[]," * (5 * MEBIBYTE) + b"1]")),
    "a payload of brackets": (
        "jobs",
        lambda: JOB % (b"[" * (8 * MEBIBYTE) + b"]" * (8 * MEBIBYTE)),
    ),
    "a number": ("jobs", lambda: JOB % (b"1" * 900_000)),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_body_is_refused_with_a_short_answer_and_a_free_loop(
    site: Site, what: str
) -> None:
    path, body = HOSTILE[what]
    data = body()

    reply = await site.post(f"{API}/{path}", raw=data)

    assert reply.status in (400, 413)
    assert 100 >= len(reply.json["error"]["details"])
    assert 65_536 > len(reply.body)


async def test_how_many_more_faults_there_are_is_in_the_message(site: Site) -> None:
    body = {f"x{n}": 1 for n in range(250)}

    reply = await site.post(f"{API}/jobs/search", body)

    assert 100 == len(reply.json["error"]["details"])
    assert reply.json["error"]["message"].endswith("; and 150 more")


async def test_jobs_of_a_batch_share_the_faults_that_are_listed(site: Site) -> None:
    wrong = {"type": "a", "payload": 1, **{f"x{n}": 1 for n in range(250)}}

    each = await site.post(f"{API}/jobs/batch", {"jobs": [wrong] * 200, "atomic": False})
    whole = await site.post(f"{API}/jobs/batch", {"jobs": [wrong] * 200})

    errors = [result["error"] for result in each.json["results"]]
    assert [100, 2] + [1] * 198 == [len(error["details"]) for error in errors]
    assert [True] * 200 == [error["message"].endswith(" more") for error in errors]
    assert errors[-1]["message"].endswith("; and 249 more")
    assert 100 == len(whole.json["error"]["details"])
    assert whole.json["error"]["message"].endswith("; and 49900 more")


@pytest.mark.parametrize("piece", [b"[],", b"1e5,", b'"",', b'"\\n",', b"{},"])
async def test_large_valid_payload_is_accepted_with_a_free_loop(site: Site, piece: bytes) -> None:
    payload = b"[" + piece * (1_000_000 // len(piece)) + b"1]"

    one = await site.post(f"{API}/jobs", raw=JOB % payload)
    keyed = await site.post(f"{API}/jobs", raw=JOB % payload, headers={"idempotency-key": "k"})
    batch = await site.post(
        f"{API}/jobs/batch", raw=b'{"jobs":[' + b",".join([JOB % payload] * 15) + b"]}"
    )

    assert [201, 201, 200] == [one.status, keyed.status, batch.status]


async def test_watchdog_fails_a_request_that_blocks_the_loop() -> None:
    async def busy() -> None:
        until = time.thread_time() + LONGEST_STEP * 2
        while time.thread_time() < until:
            pass

    with pytest.raises(AssertionError, match="blocked the event loop"):
        await watched(busy())


STOPPING: dict[str, tuple[str, bytes]] = {
    "unknown field of an outcome": ("jobs/x/complete", TOKEN + b'"other":' + LISTS + b"}"),
    "token of an outcome": ("jobs/x/complete", b'{"lease_token":' + LISTS + b"}"),
    "names of an outcome": ("jobs/x/complete", TOKEN + UNKNOWN + b"}"),
    "names of a child": ("jobs/x/spawn", TOKEN + b'"job":{"type":"a",' + UNKNOWN + b"}}"),
    "dependencies of a job": ("jobs", b'{"type":"a","payload":1,"depends_on":' + TEXTS + b"}"),
    "dependencies in a batch": (
        "jobs/batch",
        b'{"jobs":[{"type":"a","payload":1,"depends_on":' + TEXTS + b"}]}",
    ),
    "jobs that are numbers": ("jobs/batch", b'{"jobs":[' + b"1," * (7 * MEBIBYTE) + b"1]}"),
    "ids that are lists": ("jobs/cancel", b'{"job_ids":[' + b"[]," * (5 * MEBIBYTE // 2) + b"1]}"),
}


@pytest.mark.parametrize("what", STOPPING)
async def test_hostile_body_stops_no_other_thread(site: Site, what: str) -> None:
    """Other threads count too: while one of them decodes, the loop has no turn."""
    path, body = STOPPING[what]

    began = time.process_time()
    reply = await site.post(f"{API}/{path}", raw=body)
    took = time.process_time() - began

    assert reply.status in (400, 413)
    assert took < 0.15  # 0.3 to 0.6 s, when values were built that are refused
