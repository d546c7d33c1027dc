"""Test runs of a project, by Django's own runner, on databases that other processes can open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import tree
from tests.contrib.django_settings import database
from tests.servers import Postgres

TESTS = """
from django.db import connection
from django.test import TestCase, TransactionTestCase

from holdfast.contrib.django.testing import HoldfastTestMixin
from tests.contrib.shop import tasks
from tests.contrib.shop.models import Order


class WithMixin(HoldfastTestMixin, TestCase):
    def test_confirms(self):
        order = Order.objects.create(item="tea")
        tasks.confirm.enqueue(order.pk)
        tasks.confirm_async.enqueue(Order.objects.create(item="milk").pk)

        self.run_jobs()

        self.assertEqual([True, True], [each.confirmed for each in Order.objects.all()])

    async def test_confirms_async(self):
        order = await Order.objects.acreate(item="tea")
        await tasks.confirm.aenqueue(order.pk)

        await self.arun_jobs()
        await order.arefresh_from_db()

        self.assertTrue(order.confirmed)


class WithoutTransaction(HoldfastTestMixin, TransactionTestCase):
    def test_confirms(self):
        order = Order.objects.create(item="tea")
        tasks.confirm.enqueue(order.pk)

        self.run_jobs()

        self.assertTrue(Order.objects.get().confirmed)


class WithoutMixin(TransactionTestCase):
    def test_enqueues_into_the_store(self):
        tasks.answer.enqueue()
"""


@pytest.mark.slow
def test_jobs_run_in_tests_on_a_file_of_sqlite(tmp_path: Path) -> None:
    place = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}

    ended = _tested(tmp_path, {**place, "TEST": {"NAME": str(tmp_path / "test.sqlite3")}})

    assert 0 == ended.returncode, ended.stdout
    assert "Ran 4 tests" in ended.stdout


@pytest.mark.slow
def test_jobs_run_in_tests_on_postgres(tmp_path: Path, postgres_server: Postgres) -> None:
    place = {"ENGINE": "django.db.backends.postgresql", **database(postgres_server.dsn)}

    ended = _tested(tmp_path, place)  # it also drops its database, so nobody is connected to it

    assert 0 == ended.returncode, ended.stdout
    assert "Ran 4 tests" in ended.stdout
    assert "being accessed by other users" not in ended.stdout


def _tested(folder: Path, place: dict[str, object]) -> subprocess.CompletedProcess[str]:
    settings = "from tests.contrib.django_settings import *\n\n"
    settings += f"DATABASES = {{'default': {place!r}}}\nBASE_DIR = {str(folder)!r}\n"
    (folder / "site_settings.py").write_text(settings, "utf-8")
    (folder / "test_orders.py").write_text(TESTS, "utf-8")
    return subprocess.run(
        [sys.executable, "-W", "default", "-m", "django", "test", "--noinput"],
        env={
            "DJANGO_SETTINGS_MODULE": "site_settings",
            "PYTHONPATH": f"{folder}:{tree.ROOT / 'src'}:{tree.ROOT}",
            "PATH": "",
        },
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
