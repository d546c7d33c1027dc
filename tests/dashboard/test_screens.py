"""What the screens show and what their forms do, without script, over every store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.dashboard.visitor import Guest, failed_job, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def test_home_leads_to_the_failures_while_something_failed(any_site: Site) -> None:
    guest = Guest(any_site)

    quiet = await guest.get("/")
    await failed_job(any_site)
    loud = await guest.get("/")

    assert "/overview" == quiet.headers["location"]
    assert "/failures" == loud.headers["location"]


async def test_operator_gets_from_failures_to_only_those_retried(any_site: Site) -> None:
    guest = Guest(any_site)
    wanted = [await failed_job(any_site) for _ in range(12)]
    other = await failed_job(any_site, code="OTHER", message="quota exceeded")
    groups = (await any_site.get("/api/v1/failures/groups")).json["groups"]
    group = next(one["group"] for one in groups if one["code"] == "MAILBOX_UNKNOWN")

    home = await guest.follow(await guest.get("/"))
    why = await guest.get(f"/failures/{group}")
    preview = await guest.get(f"/bulk?action=retry&q=group:{group}&to={group}")
    done = await guest.post(
        "/bulk/retry", {"q": f"group:{group}", "as_of": _as_of(preview.body.decode())}
    )
    after = await guest.follow(done)

    assert "MAILBOX_UNKNOWN" in text_of(home)
    assert "the server said 550" in text_of(why)
    assert "Retry 12 jobs" in text_of(preview)
    assert "12 jobs retried." in text_of(after)
    for job_id in wanted:
        assert "SCHEDULED" == (await any_site.get(f"/api/v1/jobs/{job_id}")).json["state"]
    assert "FAILED" == (await any_site.get(f"/api/v1/jobs/{other}")).json["state"]


async def test_jobs_that_fail_after_the_preview_are_not_touched(any_site: Site) -> None:
    guest = Guest(any_site)
    await failed_job(any_site)
    preview = await guest.get("/bulk?action=retry&q=state:failed")
    late = await failed_job(any_site)

    done = await guest.post(
        "/bulk/retry", {"q": "state:failed", "as_of": _as_of(preview.body.decode())}
    )

    assert "1 job retried." in text_of(await guest.follow(done))
    assert "FAILED" == (await any_site.get(f"/api/v1/jobs/{late}")).json["state"]


def _as_of(page: str) -> str:
    return page.split('name="as_of" value="')[1].split('"', maxsplit=1)[0]


async def test_job_page_shows_why_and_retries(any_site: Site) -> None:
    guest = Guest(any_site)
    job_id = await failed_job(any_site, stack_trace="Traceback: line 7 of mail.py")

    page = await guest.get(f"/jobs/{job_id}")
    after = await guest.follow(
        await guest.post(f"/jobs/{job_id}/retry", {"back": f"/jobs/{job_id}"})
    )

    assert "Failed for good after 1 attempt: MAILBOX_UNKNOWN: the server said 550" in text_of(page)
    assert "line 7 of mail.py" in text_of(page)
    assert "The job runs again." in text_of(after)
    assert "Ready" in text_of(after)


async def test_waiting_job_can_be_cancelled_with_a_reason(any_site: Site) -> None:
    guest = Guest(any_site)
    job_id = await any_site.submit("report", delay=3600)
    await guest.get(f"/jobs/{job_id}")

    after = await guest.follow(
        await guest.post(
            f"/jobs/{job_id}/cancel", {"reason": "not needed", "back": f"/jobs/{job_id}"}
        )
    )

    assert "The job is cancelled." in text_of(after)
    assert "not needed" in text_of(after)


async def test_running_job_that_was_asked_to_stop_says_so_and_can_be_interrupted(
    any_site: Site,
) -> None:
    guest = Guest(any_site)
    job_id = await any_site.submit("report")
    await any_site.claim()
    await any_site.post(f"/api/v1/jobs/{job_id}/cancel", {"reason": "wrong month"})

    asked = await guest.get(f"/jobs/{job_id}")
    fields = {"reason": "", "force": "1", "back": f"/jobs/{job_id}"}
    forced = await guest.follow(await guest.post(f"/jobs/{job_id}/cancel", fields))

    assert "Asked to stop" in text_of(asked)
    assert "to stop (wrong month), and has not reached a checkpoint yet" in text_of(asked)
    assert "Interrupt…" in text_of(asked)
    assert b'<input type="hidden" name="force" value="1">' in asked.body
    assert "to interrupt it, and has not yet" in text_of(forced)


async def test_priority_of_a_waiting_job_changes(any_site: Site) -> None:
    guest = Guest(any_site)
    job_id = await any_site.submit("report", delay=3600)
    await guest.get(f"/jobs/{job_id}")

    await guest.post(f"/jobs/{job_id}/update", {"priority": "HIGH"})

    assert "HIGH" == (await any_site.get(f"/api/v1/jobs/{job_id}")).json["priority"]


async def test_search_finds_by_state_type_pattern_and_tag(any_site: Site) -> None:
    guest = Guest(any_site)
    mine = await any_site.submit("email.send", tags={"tenant": "acme"})
    await any_site.submit("email.send", tags={"tenant": "other"})
    await any_site.submit("report")

    page = await guest.get("/jobs?q=state:ready+type:email.*+tag.tenant:acme")

    assert mine[:13] in text_of(page)
    assert "1 of 1" in text_of(page)
    assert "report" not in text_of(page)


async def test_search_for_an_id_leads_to_the_job(any_site: Site) -> None:
    job_id = await any_site.submit("report")

    reply = await Guest(any_site).get(f"/jobs?q={job_id}")

    assert f"/jobs/{job_id}" == reply.headers["location"]


async def test_id_in_a_list_can_be_searched(any_site: Site) -> None:
    jobs = [{"type": "report", "payload": {}} for _ in range(20)]
    made = (await any_site.post("/api/v1/jobs/batch", {"jobs": jobs})).json["results"]
    guest, wanted = Guest(any_site), made[7]["job_id"]
    shown = re.findall(r'<span class="id">([^<]+)</span>', (await guest.get("/jobs")).body.decode())
    (short,) = [each for each in shown if wanted.startswith(each)]

    found = [await guest.get(f"/jobs?q={how}") for how in (short, f"id:{short}", short.upper())]

    for page in found:
        assert f'href="/jobs/{wanted}"' in page.body.decode()
        assert page.body.count(b"data-row") < 20


async def test_wrong_search_counts_nothing(any_site: Site) -> None:
    await any_site.submit("email.send")

    page = await Guest(any_site).get("/jobs?q=colour:red")

    assert b'aria-current="true"' not in page.body
    assert b"<b>0</b>" not in page.body


async def test_page_that_is_not_there_says_so_and_a_job_may_have_been_deleted(
    guest: Guest,
) -> None:
    page = text_of(await guest.get("/nope"))
    job = text_of(await guest.get("/jobs/3f2a0000-0000-4000-8000-000000000000"))

    assert "There is no page nope. Search the jobs" in page
    assert "It may have been deleted" in job


async def test_codes_and_workers_are_searched_as_the_help_says(any_site: Site) -> None:
    guest = Guest(any_site)
    failed = await failed_job(any_site, code="HTTP_503")
    running = await any_site.submit("report")
    await any_site.claim()

    by_code = await guest.get("/jobs?q=code:HTTP_*")
    nothing = await guest.get("/jobs?q=HTTP_503")
    runs = await guest.get("/jobs?q=worker:w")
    ran = await guest.get("/jobs?q=worker:w+state:failed")

    assert f'href="/jobs/{failed}"' in by_code.body.decode()
    assert b'href="/jobs?q=code%3AHTTP_503%2A"' in nothing.body
    assert f'href="/jobs/{running}"' in runs.body.decode()
    assert f'href="/jobs/{failed}"' not in runs.body.decode()
    assert f'href="/jobs/{failed}"' in ran.body.decode()


async def test_tags_workers_and_codes_are_completed(any_site: Site) -> None:
    guest = Guest(any_site)
    await any_site.submit("report", tags={"tenant": "acme inc", "Shop": "b"}, delay=3600)
    await failed_job(any_site, code="SMTP_TIMEOUT")

    async def completed(text: str) -> list[str]:
        return (await guest.get(f"/complete?q={text}")).json

    assert ["tag.tenant:", "tag.Shop:"] == sorted(await completed("tag."), reverse=True)[:2]
    assert ['tag.tenant:"acme inc"'] == await completed("tag.tenant:ac")
    assert ["tag.Shop:b"] == await completed("tag.Shop:")
    assert ["state:failed code:SMTP_TIMEOUT"] == await completed("state:failed+code:smtp")
    assert ["worker:w"] == await completed("worker:")


async def test_wrong_search_says_what_is_known(guest: Guest) -> None:
    page = await guest.get("/jobs?q=colour:red+state:purple")

    assert "colour: is not a qualifier; known are state, type" in text_of(page)
    assert "state: does not take 'purple'" in text_of(page)


async def test_pages_of_fifty_rows_follow_each_other(any_site: Site) -> None:
    guest = Guest(any_site)
    for _ in range(60):
        await any_site.submit("report")

    first = (await guest.get("/jobs")).body.decode()
    older = first.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    second = (await guest.get(older)).body.decode()

    assert 50 == first.count("data-row")
    assert 10 == second.count("data-row")


async def test_empty_pages_teach(guest: Guest) -> None:
    assert "await send_email.submit" in text_of(await guest.get("/jobs"))
    assert "No job failed in this time" in text_of(await guest.get("/failures"))


async def test_unknown_job_group_and_page_are_404_pages(guest: Guest) -> None:
    for path in ("/jobs/none", "/failures/none", "/nothing/here", "/bulk?action=explode"):
        reply = await guest.get(path)
        assert 404 == reply.status
        assert "Not here" in text_of(reply)


async def test_unknown_paths_of_the_api_stay_json(site: Site) -> None:
    reply = await site.get("/api/v1/nothing")

    assert "NOT_FOUND" == reply.code


async def test_wrong_delay_is_said_on_the_page(site: Site, guest: Guest) -> None:
    job_id = await failed_job(site)
    await guest.get(f"/jobs/{job_id}")

    reply = await guest.post(f"/jobs/{job_id}/retry", {"delay": "soon", "back": f"/jobs/{job_id}"})

    assert "must be like 30s, 15m or 2h, got 'soon'" in text_of(reply)


async def test_ids_with_slashes_and_spaces_have_a_page(site: Site, guest: Guest) -> None:
    reply = await guest.get("/jobs/a%2Fb%20c")

    assert 404 == reply.status
    assert "a/b c" in text_of(reply)


async def test_completion_offers_what_the_store_knows(site: Site, guest: Guest) -> None:
    await site.submit("email.send")

    assert ["type:email.send"] == (await guest.get("/complete?q=type:em")).json
    assert "state:failed" in (await guest.get("/complete?q=state:fa")).json
    assert "priority:" in (await guest.get("/complete?q=pri")).json


async def test_search_finds_by_code_worker_and_the_beginning_of_an_id(any_site: Site) -> None:
    guest = Guest(any_site)
    broken = await failed_job(any_site, code="SMTP_TIMEOUT", message="no answer")
    await failed_job(any_site)
    running = await any_site.submit("slow.job")
    await any_site.claim(types=["slow.job"])

    for text, found in {
        "code:SMTP_TIMEOUT": broken,
        "worker:w": running,
        f"id:{broken[:20]}": broken,
    }.items():
        page = await guest.get(f"/jobs?q={text}")
        rows = page.body.decode().split("data-row")[1:]
        assert 1 == len(rows), text
        assert found in rows[0], text
