"""Schedules over HTTP, separate for each tenant, by role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Client, Holdfast, NotFoundError, SyncClient, ValidationError
from tests.http.site import API, running
from tests.http.test_client import listening

if TYPE_CHECKING:
    from tests.http.site import Site

BODY = {"name": "tick", "type": "t", "expression": "0 7 * * MON-FRI", "tz": "Europe/Berlin"}


async def test_schedule_is_created_changed_paused_run_and_deleted(any_site: Site) -> None:
    site, path = any_site, f"{API}/schedules/tick"

    made = await site.post(f"{API}/schedules", {**BODY, "payload": {"n": 12345678901234567890}})
    again = await site.post(f"{API}/schedules", BODY)
    changed = await site.call("PATCH", path, {"expression": "30 6 * * *", "payload": None})
    paused = await site.post(f"{path}/pause")
    run = await site.post(f"{path}/run")
    listed = await site.get(f"{API}/schedules")
    resumed = await site.post(f"{path}/resume")
    deleted = await site.call("DELETE", path)
    missing = await site.get(path)

    assert (201, 12345678901234567890) == (made.status, made.json["payload"]["n"])
    assert "At 07:00 on Monday through Friday" == made.json["words"]
    assert (400, {"name": "DUPLICATE"}) == (again.status, again.fields)
    assert ("30 6 * * *", None) == (changed.json["expression"], changed.json["payload"])
    assert (True, False) == (paused.json["paused"], resumed.json["paused"])
    (one,) = listed.json["schedules"]
    assert (202, run.json["job_id"]) == (run.status, one["last_runs"][0]["job_id"])
    assert (200, 404) == (deleted.status, missing.status)


async def test_tenant_sees_and_edits_its_own_schedules_only() -> None:
    async with running(Holdfast("memory://")) as site:
        acme, other = await site.key("admin", "acme"), await site.key("admin", "other")
        await site.call("POST", f"{API}/schedules", BODY, key=acme)

        theirs = await site.get(f"{API}/schedules", key=other)
        stolen = await site.call("DELETE", f"{API}/schedules/tick", key=other)
        own = await site.get(f"{API}/schedules/tick", key=acme)

    assert ([], 404, 200) == (theirs.json["schedules"], stolen.status, own.status)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("observer", "GET"), ("operator", "GET pause"), ("admin", "GET pause POST DELETE")],
)
async def test_roles_decide_what_is_allowed(role: str, allowed: str) -> None:
    async with running(Holdfast("memory://")) as site:
        admin, key = await site.key("admin"), await site.key(role)
        await site.call("POST", f"{API}/schedules", {**BODY, "payload": {"n": 1}}, key=admin)
        path = f"{API}/schedules/tick"

        calls = {
            "GET": await site.get(path, key=key),
            "pause": await site.call("POST", f"{path}/pause", key=key),
            "POST": await site.call("POST", f"{API}/schedules", {**BODY, "name": "b"}, key=key),
            "DELETE": await site.call("DELETE", path, key=key),
        }

    assert (None if role == "observer" else {"n": 1}) == calls["GET"].json["payload"]
    found = {name for name, reply in calls.items() if reply.status < 300}
    assert set(allowed.split()) == found
    assert {403} == {reply.status for name, reply in calls.items() if name not in found} or (
        role == "admin"
    )


async def test_client_has_the_same_schedules_as_an_app() -> None:
    async with listening(Holdfast("memory://")) as served, Client(served.url) as client:
        made = await client.schedules.create("tick", "t", "0 0 * * *", options={"queue": "q"})
        await client.schedules.change("tick", payload={"a": 1})
        await client.schedules.pause("tick")
        run = await client.schedules.run("tick")
        (listed,) = await client.schedules.list()
        await client.schedules.resume("tick")
        with pytest.raises(ValidationError, match="expression"):
            await client.schedules.change("tick", expression="x")
        await client.schedules.delete("tick")
        with pytest.raises(NotFoundError):
            await client.schedules.get("tick")

    assert ("q", {"a": 1}, True) == (made.queue, listed.payload, listed.paused)
    assert run.job_id == listed.last_runs[0].job_id
    assert callable(SyncClient("http://localhost").schedules.list)


@pytest.mark.parametrize("body", [{"options": []}, {"payload": 1, "x": 2}, {"missed": "no"}])
async def test_wrong_body_is_refused(body: dict[str, object]) -> None:
    async with running(Holdfast("memory://")) as site:
        reply = await site.post(f"{API}/schedules", {**BODY, **body})

    assert 400 == reply.status
