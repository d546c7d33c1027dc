"""Every changing route of the table: refused to other sites, to wrong tokens, to wrong roles.

The cases come from the table itself, so that a new route cannot be forgotten.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import TYPE_CHECKING

import pytest

from holdfast.dashboard import screens
from holdfast.dashboard.routes import ACTIONS, SCREENS
from holdfast.dashboard.routing import RouteTable
from holdfast.dashboard.visits import PERMISSIONS
from holdfast.http.api_keys import Role
from holdfast.http.permissions import GRANTS
from tests.dashboard.scene import set_scene
from tests.dashboard.test_access import signed_in
from tests.dashboard.visitor import Guest, failed_job

if TYPE_CHECKING:
    from holdfast.dashboard.visits import Action
    from tests.http.site import Site

FORM = "application/x-www-form-urlencoded"
STRANGE = {
    "another site": {"sec-fetch-site": "cross-site"},
    "another host of the site": {"sec-fetch-site": "same-site"},
    "typed or bookmarked": {"sec-fetch-site": "none"},
    "same origin in Origin only": {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
    "old browser, another site": {"origin": "http://evil.example"},
    "old browser, opaque": {"origin": "null"},
    "old browser, longer name": {"origin": "http://localhost.evil.example"},
    "a program": {},
}

every_action = pytest.mark.parametrize("action", ACTIONS, ids=lambda each: each.path)


async def place(site: Site, action: Action, key: str | None = None) -> str:
    """Return the address of an action, with a failed job where it names one."""
    job_id = await failed_job(site, key=key)
    return re.sub(r"\{\w+\}", "none", action.path.replace("{job_id}", job_id))


async def calls(site: Site, key: str | None = None) -> list[str]:
    """Return what was audited: an action that begins writes an entry before it changes anything."""
    entries = (await site.get("/api/v1/audit", key=key)).json["entries"]
    return [entry["action"] for entry in entries if entry["action"]]


async def token_of(guest: Guest) -> str:
    await guest.get("/new-schedule")
    assert guest.token
    return guest.token


@every_action
async def test_other_sites_change_nothing(site: Site, guest: Guest, action: Action) -> None:
    path, token = await place(site, action), await token_of(guest)
    before = await calls(site)

    for name, headers in STRANGE.items():
        given = {"content-type": FORM, **headers}
        reply = await site.call("POST", path, raw=f"token={token}".encode(), headers=given)
        assert 403 == reply.status, name

    assert before == await calls(site)


@every_action
async def test_form_without_its_token_or_body_changes_nothing(
    site: Site, guest: Guest, action: Action
) -> None:
    path, own = await place(site, action), {"sec-fetch-site": "same-origin"}
    token = await token_of(guest)
    before = await calls(site)

    for raw in (b"", b"token=", b"token=" + b"0" * 64, f"token={token}x".encode()):
        headers = {**own, "content-type": FORM}
        assert 403 == (await site.call("POST", path, raw=raw, headers=headers)).status, raw
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
        headers = {**own, "content-type": kind}
        reply = await site.call("POST", path, raw=f"token={token}".encode(), headers=headers)
        assert 415 == reply.status, kind

    assert before == await calls(site)


@every_action
async def test_only_post_changes_anything(site: Site, guest: Guest, action: Action) -> None:
    path, token = await place(site, action), await token_of(guest)
    before = await calls(site)

    for method, expected in {
        "GET": 404,
        "HEAD": 404,
        "PUT": 405,
        "PATCH": 405,
        "DELETE": 405,
    }.items():
        headers = {"sec-fetch-site": "same-origin", "content-type": FORM}
        reply = await site.call(method, f"{path}?token={token}", raw=b"", headers=headers)
        assert expected == reply.status, method

    assert before == await calls(site)


@every_action
async def test_roles_without_the_permission_are_refused(site: Site, action: Action) -> None:
    admin = await site.key("admin")
    path = await place(site, action, admin)
    refused = [role for role in Role if PERMISSIONS[action.call] not in GRANTS[role]]
    assert Role.OBSERVER in refused

    for role in refused:
        guest = await signed_in(site, role)
        await guest.get("/")  # also a page that refuses has the form that signs out
        assert guest.token
        before = await calls(site, admin)
        assert 403 == (await guest.post(path)).status, role
        assert before == await calls(site, admin)


@every_action
async def test_strangers_are_refused(site: Site, action: Action) -> None:
    admin = await site.key("admin")
    path = await place(site, action, admin)
    before = await calls(site, admin)

    reply = await Guest(site).post(path)

    assert 401 == reply.status
    assert before == await calls(site, admin)


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize("headers", STRANGE.values(), ids=STRANGE)
async def test_other_sites_sign_nobody_in_or_out(
    site: Site, path: str, headers: dict[str, str]
) -> None:
    guest = await signed_in(site, "operator")
    await guest.get("/jobs")
    key = await site.key("observer")
    cookie = "; ".join(f"{name}={value}" for name, value in guest.cookies.items())

    given = {"content-type": FORM, "cookie": cookie, **headers}
    raw = f"token={guest.token}&key={key}".encode()
    reply = await site.call("POST", path, raw=raw, headers=given)

    assert 403 == reply.status
    assert "set-cookie" not in reply.headers
    assert 200 == (await guest.get("/jobs")).status


async def test_every_response_forbids_frames_and_inline_code(site: Site, guest: Guest) -> None:
    job_id = await failed_job(site)
    token = await token_of(guest)
    paths = [each.path for each in SCREENS] + ["/login", "/static/none.js", "/none"]
    replies = [await guest.get(re.sub(r"\{\w+\}", job_id, path)) for path in paths]
    for action in ACTIONS:
        guest.token = token
        replies.append(await guest.post(re.sub(r"\{\w+\}", "none", action.path)))

    for reply in replies:
        policy = dict(
            part.strip().partition(" ")[::2]
            for part in reply.headers["content-security-policy"].split(";")
        )
        assert ("'none'", "'none'") == (policy["default-src"], policy["frame-ancestors"])
        assert "'self'" == policy["script-src"] == policy["style-src"] == policy["form-action"]
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert "DENY" == reply.headers["x-frame-options"]


def test_table_has_the_actions_and_screens_of_every_module() -> None:
    modules = [
        importlib.import_module(f"{screens.__name__}.{each.name}")
        for each in pkgutil.iter_modules(screens.__path__)
    ]

    assert set() == {a.path for m in modules for a in getattr(m, "ACTIONS", ())} - {
        a.path for a in ACTIONS
    }
    assert set() == {s.path for m in modules for s in getattr(m, "SCREENS", ())} - {
        s.path for s in SCREENS
    }
    assert len(ACTIONS) == len({a.path for a in ACTIONS})
    assert len(SCREENS) == len({s.path for s in SCREENS})


async def test_every_form_leads_to_an_action_of_the_table(site: Site, guest: Guest) -> None:
    table, seen = RouteTable(ACTIONS), set()

    for name, path in (await set_scene(site)).items():
        body = (await guest.get(path)).body.decode()
        for address in re.findall(r'<form method="post"[^>]* action="([^"?]+)"', body):
            found = table.find(tuple(address.strip("/").split("/")))
            assert found is not None, (name, address)
            seen.add(found[0].path)

    assert len(seen) > len(ACTIONS) // 2
