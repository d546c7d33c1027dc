"""The test project, set up once, over a store that each test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from holdfast import State, Worker
from holdfast.contrib.django import app
from holdfast.model.job import TERMINAL
from holdfast.runtime.event_loop import run
from tests.contrib.django import SETTINGS
from tests.contrib.django_settings import database
from tests.contrib.shop.models import Order
from tests.servers import Postgres
from tests.waiting import eventually

LIVE = tuple(state for state in State if state not in TERMINAL)
Work = Callable[[], None]


@contextmanager
def configured(**given: Any) -> Iterator[None]:
    """Run a block with the setting HOLDFAST, over a store that is opened for it."""
    with override_settings(HOLDFAST=given):
        app.sync.close()
        try:
            yield
        finally:
            app.sync.close()


@pytest.fixture(scope="session")
def migrated() -> None:
    """The tables of all applications, in a database in memory."""
    call_command("migrate", run_syncdb=True, verbosity=0)


@pytest.fixture
def project(migrated: None, tmp_path: Path) -> Iterator[Path]:
    """The project over a SQLite file, with empty tables in a database of Django's."""
    with configured(URL=f"sqlite:///{tmp_path}/jobs.db"):
        yield tmp_path
    for model in (LogEntry, User, Order):
        model.objects.all().delete()


@pytest.fixture
def postgres_project(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The project over PostgreSQL: the jobs are in Django's database. Yields its alias."""
    monkeypatch.setenv(SETTINGS, "tests.contrib.django_settings")  # for child processes
    monkeypatch.setenv("SHOP_DATABASE", postgres_server.dsn)
    connections.settings["postgres"].update(database(postgres_server.dsn))
    with ExitStack() as stack:
        stack.enter_context(configured(DATABASE="postgres"))
        stack.callback(_drop_schema)
        stack.enter_context(tables("postgres"))
        yield "postgres"


def _drop_schema() -> None:
    app.sync.close()
    with connections["postgres"].cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
    connections["postgres"].close()


@contextmanager
def tables(alias: str) -> Iterator[None]:
    """Create the table of orders."""
    with connections[alias].schema_editor() as editor:
        editor.create_model(Order)
    try:
        yield
    finally:
        connections[alias].close()  # a test may have closed it at the server
        with connections[alias].schema_editor() as editor:
            editor.delete_model(Order)


@pytest.fixture
def work() -> Work:
    """Run the jobs of the project until none is left."""

    def work_off() -> None:
        queues = ["default", "queue_1"]

        async def work_until_done() -> None:
            worker = Worker(app, queues=queues, slots=4)
            working = asyncio.create_task(worker.run())
            await eventually(lambda: not app.sync.search(states=LIVE).total_count)
            worker.stop()
            await working

        run(asyncio.wait_for(work_until_done(), 30))

    return work_off
