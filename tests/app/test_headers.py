"""Headers travel with a job through every store, and on to the jobs it spawns."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, JobContext, SyncJobContext
from holdfast.encryption import KeyRing
from holdfast.store import Search
from tests.app.conftest import Drain
from tests.conformance.stores import Place

pytestmark = pytest.mark.req("E-1")


async def test_headers_reach_handlers_children_and_readers(app: Holdfast, drain: Drain) -> None:
    seen: dict[str, object] = {}

    @app.task("parent")
    async def parent(ctx: JobContext) -> str:
        seen["parent"] = dict(ctx.headers)
        return await ctx.spawn("child")

    @app.task("child")
    def child(ctx: SyncJobContext) -> None:
        seen["child"] = dict(ctx.headers)

    job = await parent.using(headers={"trace": "1"}).submit()
    await drain()

    assert {"parent": {"trace": "1"}, "child": {"trace": "1"}} == seen
    assert {"trace": "1"} == (await app.get(job.job_id)).headers
    assert [{"trace": "1"}] * 2 == [found.headers for found in (await app.search()).jobs]


async def test_headers_are_encrypted_at_rest(place: Place) -> None:
    app = Holdfast(store=place.open(), keys=KeyRing.parse(KeyRing.generate("k1")))
    async with app:
        job = await app.submit("mail", headers={"authorization": "secret-value"})
        shown = await app.get(job.job_id)

    plain = await place.open().start()
    (stored,) = (await plain.find(Search())).jobs
    await plain.close()

    assert {"authorization": "secret-value"} == shown.headers
    assert stored.extra is not None
    assert b"secret-value" not in stored.extra
