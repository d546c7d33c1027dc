"""Lists are bounded in bytes, whatever the jobs contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Holdfast
from holdfast.operations.bounded_pages import MOST_PAGE, MOST_RESULT
from holdfast.store import MemoryStore, Search
from tests.http.site import API, running

if TYPE_CHECKING:
    from holdfast.store import Page
    from tests.http.site import Site

JOBS = f"{API}/jobs"


async def _complete(site: Site, output: object) -> str:
    job_id = await site.submit("a")
    (job,) = await site.claim()
    body = {"lease_token": job["lease_token"], "output": output}
    reply = await site.post(f"{JOBS}/{job_id}/complete", body)
    assert 200 == reply.status, reply.body
    return job_id


async def test_list_leaves_out_large_results_and_says_where_they_are(site: Site) -> None:
    large = await _complete(site, "x" * MOST_RESULT)
    small = await _complete(site, "y")

    found = {job["job_id"]: job["result"] for job in (await site.get(JOBS)).json["jobs"]}
    whole = await site.get(found[large]["output_url"])

    assert (None, MOST_RESULT + 2) == (found[large]["output"], found[large]["output_omitted"])
    assert ("y", 0, None) == tuple(
        found[small][name] for name in ("output", "output_omitted", "output_url")
    )
    assert "x" * MOST_RESULT == whole.json["output"]


async def test_page_ends_early_when_its_jobs_are_large_and_goes_on_after_its_cursor(
    site: Site,
) -> None:
    tags = {f"t{n}": "x" * 1024 for n in range(60)}
    count = MOST_PAGE // 60_000 + 10
    jobs = [{"type": "a", "payload": n, "tags": tags} for n in range(count)]
    for start in range(0, count, 50):  # a batch has at most 4 MiB beside its payloads
        reply = await site.post(f"{JOBS}/batch", {"jobs": jobs[start : start + 50]})
        assert 200 == reply.status, reply.body

    first = await site.get(f"{JOBS}?limit=1000")
    second = await site.get(f"{JOBS}?limit=1000&cursor={first.json['next_cursor']}")

    assert len(first.body) < MOST_PAGE * 1.1
    assert first.json["has_more"]
    ids = [job["job_id"] for reply in (first, second) for job in reply.json["jobs"]]
    assert count == len(ids) == len(set(ids)) == first.json["total_count"]


class RecordingStore(MemoryStore):
    """Records what lists of jobs ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.searches: list[Search] = []

    async def find(self, search: Search) -> Page:
        self.searches.append(search)
        return await super().find(search)


async def test_no_list_reads_payloads_that_it_does_not_show() -> None:
    store = RecordingStore()
    async with running(Holdfast(store=store)) as site:
        await site.submit("a")
        await site.get(JOBS)
        await site.post(f"{JOBS}/search", {})
        await site.post(f"{JOBS}/cancel", {"filter": {"types": ["a"]}, "dry_run": True})

    assert 3 == len(store.searches)
    assert all(
        search.most_bytes is not None and search.most_bytes <= MOST_RESULT
        for search in store.searches
    )
