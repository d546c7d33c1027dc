"""Jobs in Django's admin, as a browser sees them."""

from __future__ import annotations

import html
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client

from holdfast.contrib.django import app
from tests.contrib.django.conftest import Work
from tests.contrib.shop import tasks

pytestmark = pytest.mark.usefixtures("project")
LIST = "/admin/holdfast/storedjob/"


def _client(*permissions: str) -> Client:
    user = User.objects.create_user("ada", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(raise_request_exception=True)
    client.force_login(user)
    return client


def test_list_shows_jobs_and_filters_them() -> None:
    kept, other = tasks.answer.enqueue(), tasks.urgent.enqueue()
    client = _client("view_storedjob")

    everything = client.get(LIST).content.decode()
    filtered = client.get(LIST, {"queue": "queue_1", "state": "SCHEDULED"}).content.decode()

    assert kept.id in everything
    assert other.id in everything
    assert kept.id not in filtered
    assert other.id in filtered


def test_list_has_pages() -> None:
    app.sync.submit_batch([{"type": "mail.send"} for _ in range(60)])
    client = _client("view_storedjob")

    first = client.get(LIST).content.decode()
    following = re.search(r'href="([^"]+)">Next page', first)
    assert following
    second = client.get(LIST + html.unescape(following[1])).content.decode()

    assert [50, 10] == [page.count('<th scope="row">') for page in (first, second)]
    assert "Next page" not in second


def test_wrong_filter_is_a_message_not_an_error() -> None:
    answer = _client("view_storedjob").get(LIST, {"state": "SLEEPY"})

    assert 200 == answer.status_code
    assert "SLEEPY" in answer.content.decode()


def test_failed_job_is_shown_and_retried(work: Work) -> None:
    result = tasks.fail_once_allowed.enqueue()
    work()
    client = _client("view_storedjob", "change_storedjob")

    page = client.get(f"{LIST}{result.id}/change/").content.decode()
    answer = client.post(f"{LIST}{result.id}/retry/", follow=True)

    assert "OutOfStock" in page
    assert "Retry" in page
    assert "Retried" in answer.content.decode()
    assert "SCHEDULED" == app.sync.get(result.id).state
    assert LogEntry.objects.get().object_id == result.id


def test_waiting_job_is_cancelled() -> None:
    result = tasks.answer.enqueue()

    _client("view_storedjob", "change_storedjob").post(f"{LIST}{result.id}/cancel/")

    assert "CANCELLED" == app.sync.get(result.id).state


def test_payload_is_text_whatever_it_contains() -> None:
    job = app.sync.submit("mail.send", {"to": "<script>alert(1)</script>"})

    page = _client("view_storedjob").get(f"{LIST}{job.job_id}/change/").content.decode()

    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;" in page


def test_one_who_may_only_view_cannot_change() -> None:
    result = tasks.answer.enqueue()
    client = _client("view_storedjob")

    assert b"Cancel" not in client.get(f"{LIST}{result.id}/change/").content
    assert 403 == client.post(f"{LIST}{result.id}/cancel/").status_code
    assert "SCHEDULED" == app.sync.get(result.id).state


def test_stranger_sees_nothing() -> None:
    client = _client()

    assert 403 == client.get(LIST).status_code
    assert 403 == client.get(f"{LIST}x/change/").status_code


def test_actions_need_post_and_jobs_must_exist() -> None:
    result = tasks.answer.enqueue()
    client = _client("view_storedjob", "change_storedjob")

    assert 405 == client.get(f"{LIST}{result.id}/cancel/").status_code
    assert 404 == client.get(f"{LIST}nothing/change/").status_code
    assert "Jobs" in client.get("/admin/").content.decode()


def test_model_without_a_table_needs_no_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
