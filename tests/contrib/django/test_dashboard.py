"""The dashboard behind a view of Django, with the login of the project."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from holdfast.contrib.django import app
from tests.contrib.shop import tasks

FORM = "application/x-www-form-urlencoded"
pytestmark = pytest.mark.usefixtures("project")


def _client(*permissions: str, **flags: bool) -> Client:
    user = User.objects.create_user("ada", password="x", **flags)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def test_stranger_is_led_to_the_login_and_one_without_permission_is_refused() -> None:
    led = Client().get("/jobs/")

    assert 302 == led.status_code
    assert led["Location"].endswith("?next=/jobs/")
    assert 403 == _client().get("/jobs/").status_code


def test_pages_load_again_instead_of_keeping_a_stream_open() -> None:
    result = tasks.answer.enqueue()
    client = _client("view_storedjob")

    page = client.get(f"/jobs/jobs/{result.id}")
    style = re.search(r'href="(/jobs/static/[^"]+\.css)"', page.content.decode())

    assert 200 == page.status_code, page.content
    assert result.id in page.content.decode()
    assert "Refresh" not in page
    assert b' data-refresh="5"' in page.content
    assert b'<noscript><meta http-equiv="refresh" content="5"></noscript></head>' in page.content
    assert b"data-feed" not in page.content
    assert "default-src 'none'" in page["Content-Security-Policy"]
    assert style
    assert "text/css" in client.get(style[1])["Content-Type"]


def test_page_on_which_people_type_is_not_loaded_again_without_script() -> None:
    result = tasks.answer.enqueue()
    client = _client("change_storedjob")

    for path in (f"/jobs/jobs/{result.id}", "/jobs/jobs"):
        page = client.get(path)
        assert b' data-refresh="5"' in page.content
        assert b"<noscript>" not in page.content


def test_every_link_of_the_first_page_leads_somewhere() -> None:
    client = _client("view_storedjob")

    start = client.get("/jobs/")
    page = client.get(start["Location"]).content.decode()
    links = set(re.findall(r'href="(/jobs/[^"#?]*)"', page))

    assert len(links) > 3
    assert {200, 303} >= {client.get(link).status_code for link in links}


@pytest.mark.parametrize(
    ("permission", "state"), [("change_storedjob", "CANCELLED"), ("view_storedjob", "SCHEDULED")]
)
def test_one_who_may_change_jobs_cancels_one(permission: str, state: str) -> None:
    result = tasks.answer.enqueue()
    client = _client(permission)
    page = client.get(f"/jobs/jobs/{result.id}").content.decode()
    token = re.search(r'name="token" value="([^"]+)"', page)

    client.post(
        f"/jobs/jobs/{result.id}/cancel",
        urlencode({"token": token[1] if token else "", "back": "/jobs/"}),
        content_type=FORM,
        headers={"sec-fetch-site": "same-origin"},
    )

    assert state == app.sync.get(result.id).state


def test_form_of_another_site_changes_nothing() -> None:
    result = tasks.answer.enqueue()
    client = _client(is_superuser=True)
    page = client.get(f"/jobs/jobs/{result.id}").content.decode()
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token

    refused = client.post(
        f"/jobs/jobs/{result.id}/cancel",
        urlencode({"token": token[1]}),
        content_type=FORM,
        headers={"sec-fetch-site": "cross-site"},
    )

    assert 403 == refused.status_code
    assert "SCHEDULED" == app.sync.get(result.id).state
