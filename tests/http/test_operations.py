"""Operations on many jobs over HTTP: the service runs them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Client, NotFoundError, ValidationError
from tests.http.site import API
from tests.http.test_client import listening
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.http.site import Site

PATH = f"{API}/operations"


async def ended(site: Site, operation_id: str, **more: Any) -> Any:
    async def look() -> Any:
        found = (await site.get(f"{PATH}/{operation_id}", **more)).json
        return found if found["finished_at"] else None

    return await eventually(look)


async def test_service_runs_operations_on_every_store(any_site: Site) -> None:
    site = any_site
    ids = [await site.submit("a", {"n": n}) for n in range(3)]

    preview = await site.post(f"{PATH}/preview", {"action": "cancel", "filter": {"types": ["a"]}})
    made = await site.post(
        PATH, {"action": "cancel", "filter": {"types": ["a"]}, "reason": "wrong"}
    )
    done = await ended(site, made.json["id"])
    listed = await site.get(f"{PATH}?limit=1")
    again = await site.post(f"{PATH}/{made.json['id']}/cancel")

    assert (200, 3, True) == (
        preview.status,
        preview.json["matched"],
        preview.json["matched_exact"],
    )
    assert set(ids) == set(preview.json["examples"])
    assert (202, "WAITING", "anyone on this machine") == (
        made.status,
        made.json["state"],
        made.json["by"],
    )
    assert ("COMPLETED", 3, 0, 0) == (done["state"], done["done"], done["skipped"], done["failed"])
    assert [done] == listed.json["operations"]
    assert (200, "COMPLETED") == (again.status, again.json["state"])


async def test_operations_are_audited_and_separate_by_namespace(site: Site) -> None:
    operator, tenant = await site.key("operator"), await site.key("operator", "acme")
    submitter = await site.key("submitter", "acme")
    await site.submit("a", {}, key=await site.key("submitter"))
    await site.submit("a", {}, key=submitter)

    made = await site.post(PATH, {"action": "cancel", "filter": {}}, key=tenant)
    done = await ended(site, made.json["id"], key=tenant)
    foreign = await site.get(f"{PATH}/{made.json['id']}", key=operator)
    stolen = await site.post(f"{PATH}/{made.json['id']}/cancel", key=operator)
    refused = await site.post(PATH, {"action": "cancel", "filter": {}}, key=submitter)
    reserved = await site.post(
        PATH, {"action": "cancel", "filter": {"tags": {"holdfast:owner": "x"}}}, key=operator
    )
    audit = await site.get(f"{API}/audit", key=await site.key("admin", "acme"))

    assert (1, 0) == (done["done"], done["failed"])
    assert (404, 404, 403, 400) == (
        foreign.status,
        stolen.status,
        refused.status,
        reserved.status,
    )
    (entry,) = [one for one in audit.json["entries"] if one["action"] == "startOperation"]
    assert (202, "operator acme") == (entry["status"], entry["key_name"])
    assert '"cancel"' in entry["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "cancel"},
        {"action": "burn", "filter": {}},
        {"action": "cancel", "filter": []},
        {"action": "cancel", "filter": {}, "ids": ["a"]},
        {"action": "cancel", "ids": []},
        {"action": "cancel", "filter": {}, "priority": "HIGH"},
        {"action": "cancel", "filter": {}, "job_ids": ["a"]},
        {"action": "cancel", "filter": {"cursor": "x"}},
    ],
)
async def test_wrong_operation_is_refused(site: Site, body: dict[str, object]) -> None:
    reply = await site.post(PATH, body)

    assert (400, []) == (reply.status, (await site.get(PATH)).json["operations"])


async def test_client_starts_and_watches_operations() -> None:
    async with listening() as served, Client(served.url) as client:
        await client.submit("a")
        preview = await client.bulk.preview("cancel", filter={"types": ["a"]})
        made = await client.bulk.start(
            "cancel", filter={"types": ["a"]}, as_of=preview.as_of, reason="why"
        )
        done = await client.bulk.wait(made.id, timeout=10)
        retried = await client.bulk.start("retry", ids=["x"], delay="PT1M", priority="LOW")
        await client.bulk.wait(retried.id, timeout=10)

        assert (1, preview.as_of) == (done.done, done.as_of)
        assert done == await client.bulk.cancel(made.id)
        assert {made.id, retried.id} == {one.id for one in await client.bulk.list()}
        with pytest.raises(NotFoundError):
            await client.bulk.get("x")
        with pytest.raises(ValidationError):
            await client.bulk.get("")
        with pytest.raises(ValidationError):
            await client.bulk.start("burn", filter={})
