"""Who may see and do what: sessions, forms, roles, namespaces, and what a page may load."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.dashboard.access import LOCAL_COOKIE
from holdfast.dashboard.routes import ACTIONS, SCREENS
from holdfast.dashboard.security import POLICY
from holdfast.dashboard.visits import PERMISSIONS
from holdfast.http.api_keys import Role, list_keys
from holdfast.http.key_changes import revoke_key
from holdfast.http.permissions import GRANTS
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore
from tests.dashboard.visitor import Guest, dashboard_site, failed_job, text_of

if TYPE_CHECKING:
    from tests.http.site import Site

ROLES = list(Role)
FOREIGN = (
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "/\r/evil.example",
    "/\x0b/evil.example",
    "/ /evil.example",
    "/x\r\nSet-Cookie: a=b",
    "/x\nSet-Cookie: a=b",
    "/\x00/evil.example",
    "/x\u2028\u010d",
    "/\u010a/evil.example",
    "/../evil",
    "/%2E%2e/evil",
)
"""Addresses of other sites as browsers read them, and what is no address."""


async def signed_in(site: Site, role: Role | str, namespace: str = "") -> Guest:
    guest = Guest(site)
    reply = await guest.sign_in(await site.key(role, namespace))
    assert 303 == reply.status
    return guest


async def test_without_keys_this_machine_needs_no_login(guest: Guest) -> None:
    assert 200 == (await guest.get("/jobs")).status


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1"])
async def test_without_keys_other_names_are_refused(guest: Guest, host: str) -> None:
    reply = await guest.get("/jobs", host=host)

    assert 421 == reply.status


async def test_with_keys_a_page_leads_to_the_login_and_back(site: Site) -> None:
    key, guest = await site.key("operator"), Guest(site)

    login = await guest.follow(await guest.get("/jobs?q=state:failed"))
    after = await guest.post("/login", {"key": key, "next": "/jobs?q=state:failed"})

    assert "Sign in" in text_of(login)
    assert "/jobs?q=state:failed" == after.headers["location"]
    assert 200 == (await guest.follow(after)).status


async def test_login_leads_to_no_other_site(site: Site) -> None:
    key, guest = await site.key("operator"), Guest(site)
    await guest.get("/login")

    for place in FOREIGN:
        reply = await guest.post("/login", {"key": key, "next": place})
        assert "/" == reply.headers["location"]


async def test_form_leads_back_to_no_other_site(site: Site, guest: Guest) -> None:
    await site.submit()
    await guest.get("/queues/default")

    for place in FOREIGN:
        reply = await guest.post("/queues/default/pause", {"back": place})
        assert re.fullmatch(r"/\?notice=\w+", reply.headers["location"])


async def test_wrong_key_stays_outside_and_is_in_the_audit_log(site: Site) -> None:
    await site.key("operator")
    guest = Guest(site)

    reply = await guest.sign_in("hf_000000000000_" + "0" * 64)

    assert 401 == reply.status
    assert "unknown, revoked or expired" in text_of(reply)
    assert {} == guest.cookies


async def test_cookie_over_tls_has_the_host_prefix_and_is_secure(site: Site) -> None:
    key, guest = await site.key("operator"), Guest(site)
    await guest.get("/login", host="jobs.example")

    reply = await guest.post("/login", {"key": key}, headers={"host": "jobs.example"})

    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("__Host-holdfast=")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")


async def test_cookie_on_this_machine_is_kept_by_every_browser(site: Site) -> None:
    guest = await signed_in(site, "operator")

    assert {LOCAL_COOKIE} == set(guest.cookies)


async def test_store_holds_no_secret_of_a_session(site: Site) -> None:
    guest = await signed_in(site, "operator")

    (record,) = await site.store.browse("dashboard-session")

    assert guest.cookies[LOCAL_COOKIE] not in f"{record.key}{record.data.decode()}"


async def test_signing_out_ends_the_session(site: Site) -> None:
    guest = await signed_in(site, "operator")
    await guest.get("/jobs")
    stolen = Guest(site)
    stolen.cookies = dict(guest.cookies)

    await guest.post("/logout")

    assert 303 == (await stolen.get("/jobs")).status


async def test_session_ends_with_its_key(site: Site) -> None:
    guest = await signed_in(site, "operator")
    (key,) = await list_keys(site.store)

    await revoke_key(site.store, key.id)
    site.forget_keys()

    assert "/login" in (await guest.get("/jobs")).headers["location"]


@pytest.mark.parametrize(
    ("steps", "ended"),
    [([59] * 11, False), ([61], True), ([59] * 13, True)],
    ids=["in use", "idle", "too old"],
)
async def test_session_ends_when_idle_or_old(steps: list[int], ended: bool) -> None:
    clock = ManualClock()
    app = Holdfast(store=MemoryStore(clock), clock=clock)
    async with dashboard_site(app) as site:
        guest = await signed_in(site, "operator")
        for minutes in steps:
            clock.advance(timedelta(minutes=minutes))
            reply = await guest.get("/jobs")

    assert ended == (303 == reply.status)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "", "origin": "http://localhost"},
    ],
)
async def test_forms_of_other_sites_change_nothing(
    site: Site, guest: Guest, headers: dict[str, str]
) -> None:
    job_id = await failed_job(site)
    await guest.get(f"/jobs/{job_id}")

    reply = await guest.post(f"/jobs/{job_id}/retry", headers=headers)

    assert 403 == reply.status
    assert "FAILED" == (await site.get(f"/api/v1/jobs/{job_id}")).json["state"]


@pytest.mark.parametrize(("origin", "status"), [("http://localhost", 303), ("http://evil", 403)])
async def test_old_browsers_are_judged_by_their_origin(
    site: Site, guest: Guest, origin: str, status: int
) -> None:
    job_id = await failed_job(site)
    await guest.get(f"/jobs/{job_id}")
    raw = f"token={guest.token}".encode()
    headers = {"origin": origin, "content-type": "application/x-www-form-urlencoded"}

    reply = await site.call("POST", f"/jobs/{job_id}/retry", raw=raw, headers=headers)

    assert status == reply.status


@pytest.mark.parametrize("token", ["", "0" * 64])
async def test_form_without_the_token_of_its_visitor_changes_nothing(
    site: Site, token: str
) -> None:
    job_id = await failed_job(site)
    guest, other = await signed_in(site, "operator"), await signed_in(site, "operator")
    await guest.get(f"/jobs/{job_id}")
    await other.get(f"/jobs/{job_id}")

    guest.token = token or other.token
    reply = await guest.post(f"/jobs/{job_id}/retry")

    assert 403 == reply.status
    assert "this form is too old" in text_of(reply)


async def test_no_action_answers_to_get(site: Site, guest: Guest) -> None:
    job_id = await failed_job(site)

    for action in ACTIONS:
        reply = await guest.get(action.path.replace("{job_id}", job_id))
        assert 404 == reply.status, action.path

    assert "FAILED" == (await site.get(f"/api/v1/jobs/{job_id}")).json["state"]


@pytest.mark.parametrize("role", ROLES)
async def test_every_role_gets_what_the_api_grants_it(site: Site, role: Role) -> None:
    operator = await site.key("admin")
    job_id = await failed_job(site, key=operator)
    guest = await signed_in(site, role)
    guest.token = site_token = (await _token(guest)) or guest.token

    for screen in SCREENS:
        reply = await guest.get(_filled(screen.path, job_id))
        granted = PERMISSIONS[screen.call] in GRANTS[role]
        assert granted == (reply.status != 403), (screen.path, reply.status)
    for action in ACTIONS:
        guest.token = site_token
        reply = await guest.post(_filled(action.path, job_id))
        granted = PERMISSIONS[action.call] in GRANTS[role]
        assert granted == (reply.status != 403), (action.path, reply.status)


async def _token(guest: Guest) -> str:
    """The token of a visitor; also a page that refuses has a form to sign out."""
    await guest.get("/jobs")
    return guest.token


def _filled(path: str, job_id: str) -> str:
    path = path.replace("{job_id}", job_id)
    filled = re.sub(r"\{\w+\}", "none", path)
    return f"{filled}?action=retry" if filled == "/bulk" else filled


async def test_observer_sees_no_button_and_no_payload(site: Site) -> None:
    job_id = await failed_job(site, key=await site.key("admin"))
    guest = await signed_in(site, "observer")

    pages = [await guest.get(path) for path in ("/jobs", "/failures", f"/jobs/{job_id}")]
    groups = (await site.get("/api/v1/failures/groups", key=await site.key("observer"))).json
    pages.append(await guest.get(f"/failures/{groups['groups'][0]['group']}"))

    for page in pages:
        body = page.body.decode()
        assert 200 == page.status
        assert ["/logout"] == re.findall(r'method="post" action="([^"]+)"', body)
        assert "/bulk" not in body.replace('action="/bulk" class="listing"', "")
    assert "may not read payloads" in text_of(pages[2])
    assert "ada" not in text_of(pages[2])


async def test_submitter_sees_only_its_own_jobs_and_no_trace(site: Site) -> None:
    admin, mine = await site.key("admin"), await site.key("submitter")
    other = await site.submit("other.job", key=admin)
    own = await site.submit("own.job", key=mine)
    guest = Guest(site)
    await guest.sign_in(mine)

    page = await guest.get("/jobs")

    assert "own.job" in text_of(page)
    assert "other.job" not in text_of(page)
    assert 404 == (await guest.get(f"/jobs/{other}")).status
    assert 200 == (await guest.get(f"/jobs/{own}")).status
    assert 403 == (await guest.get("/failures")).status


async def test_key_of_a_namespace_sees_its_namespace(site: Site) -> None:
    theirs = await failed_job(site, "their.job", key=await site.key("admin"))
    own = await failed_job(site, "our.job", key=await site.key("admin", "acme"))
    guest = await signed_in(site, "operator", "acme")

    failures, jobs = await guest.get("/failures"), await guest.get("/jobs")

    assert "our.job" in text_of(failures)
    assert "their.job" not in text_of(failures) + text_of(jobs)
    assert 404 == (await guest.get(f"/jobs/{theirs}")).status
    assert 200 == (await guest.get(f"/jobs/{own}")).status
    reply = await guest.post(f"/jobs/{theirs}/retry", {"back": "/jobs"})
    assert "there is no job with id" in text_of(await guest.follow(reply))


async def test_actions_are_in_the_audit_log_under_the_name_of_the_call(site: Site) -> None:
    job_id = await failed_job(site, key=await site.key("admin"))
    guest = await signed_in(site, "operator")
    await guest.get(f"/jobs/{job_id}")
    await guest.post(f"/jobs/{job_id}/retry", {"delay": "15m"})

    entries = (await site.get("/api/v1/audit", key=await site.key("admin"))).json["entries"]
    (entry,) = [one for one in entries if one["action"] == "retryJob"]

    assert ("operator ", 200) == (entry["key_name"], entry["status"])
    assert '{"delay":"15m"}' == entry["detail"]


async def test_every_page_has_the_policy_and_is_not_kept(site: Site, guest: Guest) -> None:
    for path in ("/jobs", "/failures", "/nothing", "/static/nothing.js"):
        reply = await guest.get(path)
        assert POLICY == reply.headers["content-security-policy"]
        assert "no-store" == reply.headers["cache-control"]
        assert "nosniff" == reply.headers["x-content-type-options"]


async def test_pages_load_nothing_from_elsewhere_and_have_no_inline_code(
    site: Site, guest: Guest
) -> None:
    job_id = await failed_job(site)

    for path in ("/jobs", "/failures", f"/jobs/{job_id}", "/bulk?action=retry"):
        body = (await guest.get(path)).body.decode()
        sources = re.findall(r'(?:src|href|action)="([^"]*)"', body)
        assert [] == [each for each in sources if not each.startswith(("/", "#"))]
        assert [] == re.findall(r"<script(?! type=\"module\" src=)|<style| style=| on\w+=", body)
