"""The backend of Django's tasks does what Django's own tests require of a backend."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import checks
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from holdfast import Priority
from holdfast.contrib.django import HoldfastBackend, app
from holdfast.contrib.django.backend import priority_of
from holdfast.contrib.django.checks import check_backends
from holdfast.contrib.django.tasks_api import (
    PACKAGE,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
    task_backends,
)
from tests.contrib.django.conftest import Work
from tests.contrib.shop import tasks

pytestmark = pytest.mark.usefixtures("project")
READY, FAILED = TaskResultStatus.READY, TaskResultStatus.FAILED
SUCCESSFUL = TaskResultStatus.SUCCESSFUL
"""What is asked of every backend; what only Django's own classes do is left to Django."""


def test_backend_supports_everything() -> None:
    backend = task_backends["default"]

    assert isinstance(backend, HoldfastBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert "default" == backend.alias


@pytest.mark.parametrize("task", [tasks.noop, tasks.noop_bare, tasks.noop_async])
def test_task_is_enqueued_and_runs(task: Any, work: Work) -> None:
    assert isinstance(task, Task)
    result = task.enqueue(1, two=3)
    assert READY == result.status
    assert not result.is_finished
    assert 0 == result.attempts
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value

    work()
    result.refresh()

    assert SUCCESSFUL == result.status
    assert result.is_finished
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.started_at == result.last_attempted_at
    assert result.return_value is None
    assert task == result.task
    assert [1] == result.args
    assert {"two": 3} == result.kwargs
    assert 1 == result.attempts
    assert [] == result.errors


@pytest.mark.parametrize("task", [tasks.noop, tasks.noop_async])
def test_task_is_enqueued_from_a_coroutine(task: Any, work: Work) -> None:
    result = asyncio.run(task.aenqueue())
    assert READY == result.status

    work()
    asyncio.run(result.arefresh())

    assert SUCCESSFUL == result.status
    assert [] == result.args
    assert {} == result.kwargs


@pytest.mark.parametrize("task", [tasks.answer, tasks.answer_async])
def test_return_value_is_kept(task: Any, work: Work) -> None:
    result = task.enqueue()

    work()

    assert 42 == task.get_result(result.id).return_value
    assert 42 == asyncio.run(task.aget_result(result.id)).return_value


def test_result_that_was_just_enqueued_is_the_one_that_is_read() -> None:
    result = tasks.noop.enqueue(1, b"bytes become text", two={"three": (4,)})

    assert result == tasks.noop.get_result(result.id)


def test_failed_task_has_an_error_per_attempt(work: Work) -> None:
    result = tasks.fail_once_allowed.enqueue()

    work()
    result.refresh()

    assert FAILED == result.status
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    (error,) = result.errors
    assert error.exception_class is tasks.OutOfStock
    assert error.traceback.endswith("OutOfStock: no tea\n")
    assert result.finished_at is not None


@pytest.mark.parametrize(
    ("task", "kind", "text"),
    [
        (tasks.leave, SystemExit, "SystemExit: this task leaves\n"),
        (tasks.return_object, TypeError, "Unsupported type"),
    ],
)
def test_any_exception_and_any_result_is_an_outcome(
    task: Any, kind: type[BaseException], text: str, work: Work
) -> None:
    result = task.enqueue()

    work()
    result.refresh()

    assert result.errors[0].exception_class is kind
    assert text in result.errors[0].traceback


def test_task_that_takes_its_context_knows_its_id(work: Work) -> None:
    result = tasks.own_id.enqueue()

    work()

    assert result.id == tasks.own_id.get_result(result.id).return_value


@pytest.mark.slow
def test_context_counts_attempts_and_their_errors(work: Work) -> None:
    result = tasks.until_third.enqueue("tea")

    work()
    result.refresh()

    assert [3, 3, 2, "tea"] == result.return_value
    assert 3 == result.attempts
    assert [ValueError, ValueError] == [error.exception_class for error in result.errors]
    assert result.started_at < result.last_attempted_at


def test_arguments_that_are_not_json_are_refused() -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.noop.enqueue(datetime.now())
    with pytest.raises(TypeError, match="Unsupported type"):
        asyncio.run(tasks.noop.aenqueue(datetime.now()))


def test_using_changes_a_copy() -> None:
    now = timezone.now()
    changed = tasks.noop.using(priority=10, run_after=now).using(queue_name="queue_1")

    assert (10, now, "queue_1") == (changed.priority, changed.run_after, changed.queue_name)
    assert (0, None, "default") == (
        tasks.noop.priority,
        tasks.noop.run_after,
        tasks.noop.queue_name,
    )
    assert tasks.noop.using() == tasks.noop


def test_options_of_a_task_reach_its_job_and_come_back() -> None:
    later = timezone.now() + timedelta(hours=1)
    changed = tasks.noop.using(priority=-60, run_after=later, queue_name="queue_1")

    result = changed.enqueue()
    job = app.sync.get(result.id)

    assert ("BULK", "queue_1", "DELAYED") == (job.priority, job.queue, job.state)
    assert job.scheduled_for is not None
    assert abs(later - job.scheduled_for) < timedelta(milliseconds=1)
    assert changed == tasks.noop.get_result(result.id).task


@pytest.mark.parametrize(
    ("number", "level"),
    [
        (100, Priority.CRITICAL),
        (51, Priority.CRITICAL),
        (50, Priority.HIGH),
        (1, Priority.HIGH),
        (0, None),
        (-1, Priority.LOW),
        (-50, Priority.LOW),
        (-51, Priority.BULK),
        (-100, Priority.BULK),
    ],
)
def test_priority_becomes_one_of_five_levels(number: int, level: Priority | None) -> None:
    assert level == priority_of(number)


@pytest.mark.parametrize("priority", [-101, 101, 3.1])
def test_priority_outside_the_range_is_refused(priority: float) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        tasks.noop.using(priority=priority)


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidTask, match="aware"):
        tasks.noop.using(run_after=datetime.now())


@override_settings(USE_TZ=False)
def test_time_without_a_zone_is_local_where_the_project_has_no_zones() -> None:
    result = tasks.noop.using(run_after=datetime.now() + timedelta(hours=1)).enqueue()

    job = app.sync.get(result.id)
    assert "DELAYED" == job.state


def test_queue_must_be_one_of_the_backend() -> None:
    with pytest.raises(InvalidTask, match="queue-2"):
        tasks.noop.using(queue_name="queue-2")
    assert "queue-2" == tasks.noop.using(queue_name="queue-2", backend="any_queue").queue_name


def test_queue_must_have_a_name_that_a_store_can_keep() -> None:
    with pytest.raises(InvalidTask, match="must match"):
        tasks.noop.using(queue_name="two words", backend="any_queue")


def test_settings_are_checked_again_when_a_task_is_enqueued() -> None:
    task = tasks.noop.using(queue_name="queue_1")
    backend = {"BACKEND": "holdfast.contrib.django.HoldfastBackend", "QUEUES": ["default"]}

    with override_settings(TASKS={"default": backend}):
        with pytest.raises(InvalidTask, match="queue_1"):
            task.enqueue()
        with pytest.raises(InvalidTask, match="queue_1"):
            asyncio.run(task.aenqueue())


def test_function_must_be_at_module_level() -> None:
    def inner() -> None: ...

    for function in (inner, any):
        with pytest.raises(InvalidTask, match="module level"):
            tasks.task()(function)


def test_task_that_takes_context_needs_a_parameter_for_it() -> None:
    with pytest.raises(InvalidTask, match="context"):
        tasks.task(takes_context=True)(tasks.answer.func)


def test_task_can_be_called_without_a_queue() -> None:
    assert 42 == tasks.answer.call()
    assert 42 == tasks.answer_async.call()
    assert 42 == asyncio.run(tasks.answer_async.acall())


def test_missing_result_is_an_error() -> None:
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result("123")
    with pytest.raises(TaskResultDoesNotExist):
        asyncio.run(tasks.noop.aget_result("123"))


def test_result_of_another_task_is_an_error() -> None:
    result = tasks.answer.enqueue()

    with pytest.raises(Exception, match="does not match"):
        tasks.noop.get_result(result.id)


def test_job_that_is_no_task_has_no_result_and_is_not_imported() -> None:
    job = app.sync.submit("antigravity.fly")

    with pytest.raises(TaskResultDoesNotExist, match="no task here"):
        task_backends["default"].get_result(job.job_id)


def test_signals_are_sent_in_order(work: Work) -> None:
    seen: list[tuple[str, str]] = []

    def note(name: str) -> Any:
        def receive(sender: object, task_result: Any, **_: object) -> None:
            assert sender is HoldfastBackend
            seen.append((name, str(task_result.status)))

        return receive

    receivers = {name: note(name) for name in ("enqueued", "started", "finished")}
    for name, receiver in receivers.items():
        getattr(signals, f"task_{name}").connect(receiver)
    try:
        tasks.answer.enqueue()
        work()
        tasks.fail_for_good.enqueue()
        work()
    finally:
        for name, receiver in receivers.items():
            getattr(signals, f"task_{name}").disconnect(receiver)

    assert [
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "FAILED"),
    ] == seen


def test_receiver_that_fails_does_not_fail_the_task(work: Work) -> None:
    def receive(**_: object) -> None:
        raise RuntimeError("a receiver with a bug")

    signals.task_started.connect(receive)
    try:
        result = tasks.answer.enqueue()
        work()
    finally:
        signals.task_started.disconnect(receive)

    assert 42 == tasks.answer.get_result(result.id).return_value


def test_job_of_another_store_waits_for_the_commit() -> None:
    with transaction.atomic():
        result = tasks.answer.enqueue()
        with pytest.raises(TaskResultDoesNotExist):
            tasks.answer.get_result(result.id)

    assert result == tasks.answer.get_result(result.id)


def test_job_of_a_transaction_that_is_rolled_back_never_exists() -> None:
    with transaction.atomic():
        result = tasks.answer.enqueue()
        transaction.set_rollback(True)

    with pytest.raises(TaskResultDoesNotExist):
        tasks.answer.get_result(result.id)


def test_faults_are_reported_before_the_commit() -> None:
    with transaction.atomic(), pytest.raises(Exception, match="exceeds limit"):
        tasks.noop.enqueue("x" * 2_000_000)


def test_check_names_wrong_options_and_queues() -> None:
    params = {"QUEUES": ["two words"], "OPTIONS": {"timeout": "soon"}}

    found = HoldfastBackend("other", params).check()

    assert ["holdfast.E003", "holdfast.E004"] == [message.id for message in found]
    assert all(isinstance(message, checks.Error) for message in found)


def test_check_names_options_and_tasks_that_do_not_exist() -> None:
    tasks_options = {"tests.contrib.shop.tasks.anser": {"max_attempts": 1}}
    backend = HoldfastBackend(
        "other", {"OPTIONS": {"max_atempts": 5, "tasks": tasks_options}, "QUEUES": []}
    )

    texts = {str(message.id): str(message.msg) for message in backend.check()}

    where = "TASKS['other']['OPTIONS']"
    assert {
        "holdfast.E004": f"{where}: 'max_atempts' is not an option: did you mean 'max_attempts'?",
        "holdfast.W002": f"{where}['tasks']: no task is 'tests.contrib.shop.tasks.anser':"
        " did you mean 'tests.contrib.shop.tasks.answer'?",
    } == texts
    with pytest.raises(InvalidTask, match="did you mean 'max_attempts'"):
        backend._register(tasks.answer)  # as a new task of this backend would be


def test_check_asks_for_the_application() -> None:
    with override_settings(INSTALLED_APPS=["tests.contrib.shop"]):
        (found,) = task_backends["any_queue"].check()

    assert "holdfast.E005" == found.id
    assert "'holdfast.contrib.django' in INSTALLED_APPS" in found.msg


def test_backends_are_checked_although_the_backport_is_not_installed() -> None:
    found = check_backends()

    assert [] == found if PACKAGE == "django.tasks" else {"W002"} >= {each.id for each in found}


@pytest.mark.parametrize("arguments", [(1, 2), ()])
def test_arguments_that_do_not_fit_are_refused_at_once(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match=r"tests\.contrib\.shop\.tasks\.confirm: "):
        tasks.confirm.enqueue(*arguments)
    with pytest.raises(TypeError, match="nobody"):
        tasks.own_id.enqueue(nobody=1)
