"""Tasks that are enqueued inside a transaction on the database that holds the jobs."""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from holdfast import NotFoundError
from holdfast.contrib.django import app
from holdfast.contrib.django.tasks_api import TaskResultDoesNotExist, TaskResultStatus
from tests.contrib.django.conftest import Work, configured
from tests.contrib.shop import tasks
from tests.contrib.shop.models import Order

pytestmark = pytest.mark.postgres


def test_job_commits_with_the_data(postgres_project: str, work: Work) -> None:
    with transaction.atomic(using=postgres_project):
        Order.objects.using(postgres_project).create(item="tea")
        result = tasks.answer.enqueue()
        assert 1 == _jobs_seen(postgres_project)
        with pytest.raises(TaskResultDoesNotExist):  # no other transaction sees it yet
            tasks.answer.get_result(result.id)
    work()
    result.refresh()

    assert TaskResultStatus.SUCCESSFUL == result.status
    assert 1 == Order.objects.using(postgres_project).count()


def test_job_is_rolled_back_with_the_data(postgres_project: str) -> None:
    with transaction.atomic(using=postgres_project):
        Order.objects.using(postgres_project).create(item="tea")
        result = tasks.answer.enqueue()
        transaction.set_rollback(True, using=postgres_project)

    with pytest.raises(TaskResultDoesNotExist):
        tasks.answer.get_result(result.id)
    assert 0 == Order.objects.using(postgres_project).count()


def test_savepoint_that_is_rolled_back_takes_its_job_along(postgres_project: str) -> None:
    with transaction.atomic(using=postgres_project):
        kept = tasks.answer.enqueue()
        with transaction.atomic(using=postgres_project):
            lost = tasks.answer.enqueue()
            transaction.set_rollback(True, using=postgres_project)

    assert kept == tasks.answer.get_result(kept.id)
    with pytest.raises(TaskResultDoesNotExist):
        tasks.answer.get_result(lost.id)


def test_task_outside_a_transaction_is_enqueued_at_once(postgres_project: str) -> None:
    result = tasks.answer.enqueue()

    assert result == tasks.answer.get_result(result.id)
    assert postgres_project


def test_tasks_of_the_app_take_the_connection(postgres_project: str) -> None:
    with transaction.atomic(using=postgres_project):
        task = tasks.connection_pid.using(connection=connections[postgres_project])
        job = task.submit_sync(alias=postgres_project)
        transaction.set_rollback(True, using=postgres_project)

    with pytest.raises(NotFoundError):
        app.sync.get(job.job_id)


def test_store_of_the_same_database_is_recognised(postgres_project: str) -> None:
    url = app.url + "?pool=2&application_name=shop"

    with configured(URL=url, DATABASE=postgres_project):
        with transaction.atomic(using=postgres_project):
            result = tasks.answer.enqueue()
            assert 1 == _jobs_seen(postgres_project)

        assert result == tasks.answer.get_result(result.id)


def _jobs_seen(alias: str) -> int:
    """Return how many jobs the transaction of this thread sees."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM holdfast.job")
        return int(cursor.fetchone()[0])
