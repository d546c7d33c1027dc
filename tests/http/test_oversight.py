"""What an operator reads of all jobs at once, over HTTP and with the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Client
from holdfast.http.api_keys import Role
from tests.http.site import API
from tests.http.test_client import listening

if TYPE_CHECKING:
    from tests.http.site import Site


async def _fail(site: Site, message: str, **given: object) -> str:
    job_id = await site.submit("a", 1, **given)
    (claimed,) = await site.claim(wait=5)
    fault = {"lease_token": claimed["lease_token"], "message": message, "category": "PERMANENT"}
    await site.post(f"{API}/jobs/{job_id}/fail", fault)
    return job_id


async def test_failure_groups_are_listed_and_retried(any_site: Site) -> None:
    site = any_site
    for n in range(3):
        await _fail(site, f"user {n} is unknown")
    last = await _fail(site, "no route")

    found = (await site.get(f"{API}/failures/groups?time_range=PT30M")).json
    group = found["groups"][0]["group"]
    listed = (await site.get(f"{API}/jobs?group={group}")).json
    searched = (await site.post(f"{API}/jobs/search", {"group": group, "limit": 2})).json
    retried = (await site.post(f"{API}/jobs/retry", {"filter": {"group": group}})).json

    assert [("user <number> is unknown", 3), ("no route", 1)] == [
        (one["message"], one["count"]) for one in found["groups"]
    ]
    assert (last, 4, "PT60S") == (
        found["groups"][1]["sample_job_id"],
        found["total"],
        found["step"],
    )
    assert (3, 2, 3) == (len(listed["jobs"]), len(searched["jobs"]), retried["retried"])
    assert {"a": 4} == found["failed_now"]


async def test_who_may_watch_sees_failure_groups(site: Site) -> None:
    for role, status in ((Role.SUBMITTER, 403), (Role.OBSERVER, 200), (Role.OPERATOR, 200)):
        key = await site.key(role)
        assert status == (await site.get(f"{API}/failures/groups", key=key)).status


async def test_a_window_of_failure_groups_is_checked(site: Site) -> None:
    for window in ("P8D", "x", "-1", "0"):
        response = await site.get(f"{API}/failures/groups?time_range={window}")
        assert (400, "time_range") == (
            response.status,
            response.json["error"]["details"][0]["field"],
        )


async def test_series_on_every_store(any_site: Site) -> None:
    await any_site.submit("a", queue="q")

    found = await any_site.get(f"{API}/series?breakdown_by=QUEUE&types=a&types=b")
    week = await any_site.get(f"{API}/series?time_range=P7D&step=PT1H")
    wrong = await any_site.get(f"{API}/series?step=5")

    assert (1, 61, "PT60S") == (
        sum(found.json["total"]["submitted"]),
        found.json["points"],
        found.json["step"],
    )
    assert (["q"], ["a", "b"]) == (list(found.json["by_queue"]), list(found.json["by_type"]))
    assert (169, 1, None) == (
        week.json["points"],
        sum(week.json["total"]["submitted"]),
        week.json["by_queue"],
    )
    assert 400 == wrong.status


async def test_client_reads_series() -> None:
    async with listening() as served, Client(served.url) as client:
        await client.submit("a")

        found = await client.series(time_range="PT1H", step=60, queues=["default", "x"])

        assert found.by_queue is not None
        assert {"default": 1, "x": 0} == {
            name: sum(line.submitted) for name, line in found.by_queue.items()
        }


async def test_jobs_are_searched_and_counted_on_every_store(any_site: Site) -> None:
    site = any_site
    job_id = await site.submit("email.send", 1, tags={"t": "1"})
    await site.submit("report", 1)
    failed = await _fail(site, "no", priority="CRITICAL")

    found = await site.get(f"{API}/jobs?types=email.*&id_prefix={job_id[:8]}")
    coded = await site.post(f"{API}/jobs/search", {"code": "X", "worker": None})
    counted = await site.post(f"{API}/jobs/count", {"tags": {"t": "1"}})
    every = await site.post(f"{API}/jobs/count")
    wrong = await site.post(f"{API}/jobs/count", {"limit": 5})

    assert [job_id] == [job["job_id"] for job in found.json["jobs"]]
    assert [] == coded.json["jobs"]
    assert {"SCHEDULED": 1} == counted.json["by_state"]
    assert 3 == every.json["total"], failed
    assert 400 == wrong.status
