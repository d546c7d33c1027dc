"""The setting HOLDFAST, the URL of the store, the checks and the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from holdfast.contrib.django import app
from holdfast.contrib.django.checks import check_settings
from holdfast.contrib.django.configuration import database_url, is_own_database, read_settings
from tests.architecture import tree
from tests.contrib.shop import tasks

SERVER = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "", "PASSWORD": ""}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "postgresql:///shop"),
        ({"USER": "ada", "HOST": "db"}, "postgresql://ada@db/shop"),
        (
            {"USER": "a@b", "PASSWORD": "p/w?d", "HOST": "10.0.0.1", "PORT": "5433"},
            "postgresql://a%40b:p%2Fw%3Fd@10.0.0.1:5433/shop",
        ),
        (
            {"HOST": "/run/postgresql", "PORT": 5433},
            "postgresql:///shop?host=%2Frun%2Fpostgresql&port=5433",
        ),
        (
            {"HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://db/shop?sslmode=require",
        ),
    ],
)
def test_url_of_the_store_comes_from_the_database(given: dict[str, Any], url: str) -> None:
    settings = {**connections.settings["postgres"], **SERVER, "HOST": "", "PORT": "", **given}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections["postgres"], "settings_dict", settings)

        assert url == database_url("postgres")


def test_own_database_is_recognised_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**connections.settings["postgres"], **SERVER, "HOST": "db", "PORT": ""}
    monkeypatch.setattr(connections["postgres"], "settings_dict", settings)

    with override_settings(HOLDFAST={"DATABASE": "postgres"}):
        assert is_own_database("postgresql://other@db:5432/shop?schema=jobs")
        assert not is_own_database("postgresql://db/other")
        assert not is_own_database("sqlite:///jobs.db")
    with override_settings(HOLDFAST={"DATABASE": "postgres", "SHARES_DATABASE": True}):
        assert is_own_database("postgresql://pooler/shop")
    with override_settings(HOLDFAST={}):
        assert not is_own_database("postgresql://db/shop")


def test_store_without_any_setting_is_a_file_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)

    with override_settings(HOLDFAST={}, BASE_DIR=tmp_path):
        assert f"sqlite:///{tmp_path}/holdfast.db" == app.url
        monkeypatch.setenv("HOLDFAST_URL", "redis://elsewhere")
        assert "redis://elsewhere" == app.url
    with override_settings(HOLDFAST={"URL": "memory://"}):
        assert "memory://" == app.url


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"URI": "x"}, "did you mean 'URL'?"),
        ({"URL": 5}, "`URL`"),
        ([], "must be a dict"),
        ({"DATABASE": "nowhere"}, "one of DATABASES"),
        ({"URL": "mongodb://x"}, "mongodb"),
        ({"URL": "postgresql://db/x?colour=red"}, "colour"),
        ({"QUEUES": {"documents": "paper"}}, "paper"),
    ],
)
def test_wrong_setting_is_reported_by_check(given: object, message: str) -> None:
    with override_settings(HOLDFAST=given):
        found = check_settings()

    assert [checks.ERROR] == [each.level for each in found]
    assert message in str(found[0])


def test_wrong_setting_is_an_error_where_it_is_read() -> None:
    with override_settings(HOLDFAST={"URI": "x"}), pytest.raises(ImproperlyConfigured):
        read_settings()


def test_store_in_memory_is_a_warning() -> None:
    with override_settings(HOLDFAST={"URL": "memory://"}):
        assert ["holdfast.W001"] == [message.id for message in check_settings()]


def test_checks_are_registered(project: Path) -> None:
    assert [] == [
        message for message in checks.run_checks() if str(message.id).startswith("holdfast")
    ]


def test_tasks_of_installed_applications_are_registered() -> None:
    assert "shop.connection_pid" in app.registry
    assert "tests.contrib.shop.tasks.answer" in app.registry


def test_command_runs_on_the_store_of_the_project(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tasks.answer.enqueue()

    call_command("holdfast", "jobs", "--json")

    assert [result.id] == [job["job_id"] for job in json.loads(capsys.readouterr().out)["jobs"]]


def test_command_that_fails_exits_with_its_code(project: Path) -> None:
    tasks.answer.enqueue()

    with pytest.raises(SystemExit) as exited:
        call_command("holdfast", "job", "no-such-job")

    assert 1 == exited.value.code


def test_command_names_the_settings_as_the_source_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)

    with (
        override_settings(HOLDFAST={"URL": f"sqlite:///{tmp_path}/no.db"}),
        pytest.raises(SystemExit),
    ):
        call_command("holdfast", "jobs")

    assert "(from Django's settings HOLDFAST and DATABASES)" in capsys.readouterr().err


@pytest.mark.slow
def test_worker_of_manage_runs_the_tasks_in_its_own_processes(project: Path) -> None:
    result = tasks.answer.enqueue()

    ended = subprocess.run(
        [sys.executable, "-m", "django", "holdfast", "worker", "--burst"],
        env={
            "DJANGO_SETTINGS_MODULE": "tests.contrib.django_settings",
            "HOLDFAST_URL": app.url,
            "PYTHONPATH": f"{tree.ROOT / 'src'}:{tree.ROOT}",
            "PATH": "",
        },
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert 0 == ended.returncode, ended.stderr
    assert 42 == tasks.answer.get_result(result.id).return_value
