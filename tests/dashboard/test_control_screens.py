"""The screens of workers, schedules and limits, without script, over every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.model.reserved import DRAINED
from holdfast.model.workers import RunningJob, WorkerInfo
from holdfast.operations.workers import announce
from tests.dashboard.test_access import signed_in
from tests.dashboard.visitor import Guest, text_of

if TYPE_CHECKING:
    from tests.http.site import Site

NIGHTLY = {"name": "nightly", "type": "search.index", "expression": "0 2 * * *"}


async def present(site: Site, **more: Any) -> WorkerInfo:
    """Announce a worker."""
    now = site.store.now()
    info = WorkerInfo(
        **{
            "id": "web-1",
            "host": "web.example",
            "pid": 4711,
            "queues": ("mail",),
            "types": ("email.send",),
            "slots": 8,
            "running": 1,
            "started_at": now,
            "version": "1.2.3",
            "app_version": "2026.11",
            "memory": 100 * 1024 * 1024,
            "running_jobs": (RunningJob(job_id="j1", type="email.send", queue="mail", since=now),),
            "announced_at": now,
            **more,
        }
    )
    await announce(site.store, info)
    return info


async def test_workers_show_where_and_what_they_run(any_site: Site) -> None:
    await present(any_site)

    text = text_of(await Guest(any_site).get("/workers"))

    for part in ("1 of 8 slots in use", "web.example · process 4711 · mail", "100 MiB", "1.2.3"):
        assert part in text
    assert "2026.11" in text
    assert "1 job running" in text


async def test_slots_of_a_drained_worker_count_with_its_jobs(site: Site, guest: Guest) -> None:
    await present(site, slots=2, running=2, draining=True)

    text = text_of(await guest.get("/workers"))

    assert "2 of 2 slots in use" in text


async def test_worker_is_drained_and_undrained(any_site: Site) -> None:
    guest = Guest(any_site)
    await present(any_site)
    await guest.get("/workers")

    drained = await guest.follow(await guest.post("/workers/web-1/drain", {"back": "/workers"}))
    record = await any_site.store.browse(DRAINED)
    undrained = await guest.follow(await guest.post("/workers/web-1/undrain", {"back": "/workers"}))

    assert "Worker web-1 claims no more jobs." in text_of(drained)
    assert ["web-1"] == [each.key for each in record]
    assert "Worker web-1 claims jobs again." in text_of(undrained)
    assert [] == await any_site.store.browse(DRAINED)


async def test_worker_that_is_gone_cannot_be_drained(site: Site, guest: Guest) -> None:
    await present(site)
    await guest.get("/workers")

    reply = await guest.post("/workers/gone/drain", {"back": "/workers"})

    assert "Nothing was changed: no worker gone is alive." in text_of(await guest.follow(reply))


async def test_workers_warn_of_leaks_and_of_versions_that_differ(site: Site, guest: Guest) -> None:
    await present(site, leaked_threads=2)
    await present(site, id="web-2", version="1.2.4")

    text = text_of(await guest.get("/workers"))

    assert "2 leaked threads" in text
    assert "These workers run holdfast 1.2.3, 1.2.4." in text


async def test_without_workers_the_page_says_how_to_start_one(site: Site, guest: Guest) -> None:
    await site.submit("email.send")

    text = text_of(await guest.get("/workers"))

    assert "1 job waits for one." in text
    assert "holdfast worker yourmodule:app" in text


async def test_schedules_show_words_next_and_last_runs(any_site: Site) -> None:
    guest = Guest(any_site)
    await any_site.post("/api/v1/schedules", {**NIGHTLY, "tz": "Europe/Berlin", "missed": "skip"})
    await any_site.post("/api/v1/schedules/nightly/run", {})

    listed, page = await guest.get("/schedules"), text_of(await guest.get("/schedules/nightly"))

    assert "At 02:00 every day, Europe/Berlin" in text_of(listed)
    assert 1 == listed.body.count(b'class="dot ')
    assert 3 == page.count("02:00, Europe/Berlin")
    assert "are skipped" in page


async def test_schedule_is_created_edited_paused_run_and_deleted(any_site: Site) -> None:
    guest = Guest(any_site)
    await guest.get("/new-schedule")

    fields = {**NIGHTLY, "tz": "UTC", "payload": '{"n": 1}', "queue": "search", "missed": "all"}
    made = await guest.follow(await guest.post("/new-schedule/create", fields))
    back = {"back": "/schedules/nightly"}
    change = {"expression": "30 3 * * *", "payload": '{"n": 2}', "missed": "one", **back}
    await guest.post("/schedules/nightly/edit", change)
    await guest.post("/schedules/nightly/pause", back)
    stored = (await any_site.get("/api/v1/schedules/nightly")).json
    await guest.post("/schedules/nightly/resume", back)
    resumed = (await any_site.get("/api/v1/schedules/nightly")).json
    job = await guest.follow(await guest.post("/schedules/nightly/run", back))
    gone = await guest.follow(await guest.post("/schedules/nightly/delete", back))

    assert "Schedule nightly is created." in text_of(made)
    assert ("30 3 * * *", {"n": 2}, "one", True) == (
        stored["expression"],
        stored["payload"],
        stored["missed"],
        stored["paused"],
    )
    assert not resumed["paused"]
    assert "search.index" in text_of(job)
    assert "Schedule nightly is deleted." in text_of(gone)
    assert 404 == (await any_site.get("/api/v1/schedules/nightly")).status


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expression": "whenever"}, "must"),
        ({"tz": "Mars/Base"}, "Mars/Base"),
        ({"payload": "{"}, "is not JSON: Expecting property name"),
        ({"name": "no spaces"}, "must match"),
    ],
)
async def test_mistake_in_a_new_schedule_leads_back_to_the_filled_form(
    site: Site, guest: Guest, fields: dict[str, str], message: str
) -> None:
    await guest.get("/new-schedule")

    form = {**NIGHTLY, "back": "/new-schedule", **fields}
    reply = await guest.post("/new-schedule/create", form)

    assert 422 == reply.status
    assert message in text_of(reply)
    assert b'value="search.index"' in reply.body
    assert [] == (await site.get("/api/v1/schedules")).json["schedules"]


async def test_operator_runs_schedules_but_does_not_edit_them(site: Site) -> None:
    await site.post("/api/v1/schedules", NIGHTLY, key=await site.key("admin"))
    operator, observer = await signed_in(site, "operator"), await signed_in(site, "observer")

    allowed = (await operator.get("/schedules/nightly")).body
    watched = (await observer.get("/schedules/nightly")).body

    assert b"/schedules/nightly/run" in allowed
    assert b"/schedules/nightly/edit" not in allowed
    assert b"/schedules/nightly/delete" not in allowed
    assert b'action="/schedules' not in watched


async def test_limit_is_set_shown_changed_and_lifted(any_site: Site) -> None:
    guest, back = Guest(any_site), {"back": "/limits"}
    empty = text_of(await guest.get("/limits"))

    rate = {"rate": "50", "per": "1m", "burst": "7"}
    fields = {"kind": "queue", "name": "mail", "concurrency": "1", **rate}
    made = text_of(await guest.follow(await guest.post("/limits/set", {**fields, **back})))
    for _ in range(2):
        await any_site.submit("email.send", queue="mail")
    await any_site.claim(queues=["mail"], limit=2)
    used = text_of(await guest.get("/limits"))
    await guest.post("/limits/set", {"scope": "queue:mail", "concurrency": "9", **back})
    changed = text_of(await guest.get("/limits"))
    lifted = text_of(
        await guest.follow(await guest.post("/limits/lift", {"scope": "queue:mail", **back}))
    )

    assert "No limits" in empty
    assert "limited to 1 job at once, 50 starts per min, bursts of 7, on all" in made
    assert "1 of 1" in used
    assert "1 of 7" in used
    assert "holds back jobs of mail , where 1 job is ready" in used
    assert "9 jobs at once" in changed
    assert "queue:mail has no limit any more." in lifted
    assert "No limits" in lifted


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs a number, unless Starts has one"),
        ({"concurrency": "many"}, "must be a whole number"),
        ({"concurrency": "0"}, "must be a whole number from 1"),
        ({"rate": "5", "per": "now and then"}, "must be like 1s"),
        ({"rate": "5", "burst": "0"}, "must be a whole number from 1"),
        ({"concurrency": "5", "burst": "2"}, "must come with a rate"),
        ({"name": "no good\n", "rate": "5", "kind": "other"}, "must be queue:NAME"),
    ],
)
async def test_wrong_limit_changes_nothing_and_says_why(
    site: Site, guest: Guest, fields: dict[str, str], message: str
) -> None:
    await guest.get("/limits")

    form = {"kind": "queue", "name": "mail", **fields, "back": "/limits"}
    reply = await guest.post("/limits/set", form)

    assert 422 == reply.status
    assert "Nothing was changed." in text_of(reply)
    assert message in text_of(reply)
    assert [] == (await site.get("/api/v1/limits")).json["limits"]


async def test_namespace_cannot_change_a_limit_of_the_whole_store(site: Site) -> None:
    await site.app.set_limit("queue:acme/mail", rate=5)
    guest = await signed_in(site, "operator", "acme")
    page = await guest.get("/limits")

    fields = {"scope": "queue:mail", "rate": "500", "back": "/limits"}
    reply = text_of(await guest.follow(await guest.post("/limits/set", fields)))

    assert b'value="task"' not in page.body
    assert "Nothing was changed: 'queue:mail' was limited by an operator" in reply
