"""Middleware on both sides of the service: that of the caller's app, then that of the service's."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast import Holdfast, Middleware, Submission
from holdfast.http.server import ListenAddress, beside


class Marking(Middleware):
    """Adds its name to a header."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submitting(self, submission: Submission) -> Submission:
        before = (submission.headers or {}).get("by", "")
        return replace(submission, headers={"by": before + self.name})


async def test_caller_and_service_run_their_own_middleware() -> None:
    inside = Holdfast("memory://")
    inside.middleware(Marking("service "))

    async with inside, beside(inside, ListenAddress(port=0)) as address:
        outside = Holdfast(address)
        outside.middleware(Marking("caller "))
        async with outside:
            await outside.submit("one", {"a": 1})
            await outside.submit_batch([Submission(type="two"), {"type": "three"}])
            await outside.chain([Submission(type="four"), Submission(type="five")])
        jobs = (await inside.search()).jobs

    assert ["one", "two", "three", "four", "five"] == sorted(
        (job.type for job in jobs), key=["one", "two", "three", "four", "five"].index
    )
    assert {"caller service "} == {job.headers["by"] for job in jobs}
