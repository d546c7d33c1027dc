"""Tasks of both kinds: Django's own, and those of the app."""

from __future__ import annotations

from typing import Any

from django.db import connections

from holdfast import PermanentError, Task
from holdfast.contrib.django import app
from holdfast.contrib.django.tasks_api import PACKAGE
from tests.contrib.shop.models import Order

if PACKAGE == "django.tasks":
    from django.tasks import task
else:
    from django_tasks import task


class OutOfStock(Exception):
    """An exception of the application."""


@task()
def noop(*args: Any, **kwargs: Any) -> None:
    return None


@task
def noop_bare(*args: Any, **kwargs: Any) -> None:
    return None


@task()
async def noop_async(*args: Any, **kwargs: Any) -> None:
    return None


@task()
def answer() -> int:
    return 42


@task()
async def answer_async() -> int:
    return 42


@task()
def fail() -> None:
    raise ValueError("this task failed")


@task()
def fail_once_allowed() -> None:
    raise OutOfStock("no tea")


@task()
def fail_for_good() -> None:
    raise PermanentError("never again")


@task()
def leave() -> None:
    raise SystemExit("this task leaves")


@task()
def return_object() -> Any:
    return object()


@task(takes_context=True)
def own_id(context: Any) -> str:
    return str(context.task_result.id)


@task(takes_context=True)
def until_third(context: Any, word: str) -> list[Any]:
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return [context.attempt, context.task_result.attempts, len(context.task_result.errors), word]


@task(queue_name="queue_1", priority=60)
def urgent() -> None:
    return None


@task()
def confirm(order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(confirmed=True)


@task()
async def confirm_async(order_id: int) -> None:
    await Order.objects.filter(pk=order_id).aupdate(confirmed=True)


@app.task("shop.connection_pid")
def connection_pid(alias: str) -> int:
    """Return the id of the server process behind the connection of this thread."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@app.task("shop.close_connections")
def close_connections() -> None:
    """Close those of this thread, which would warn that it ends with an open one."""
    connections.close_all()


@app.task("shop.connection_pid_async")
async def connection_pid_async(alias: str) -> int:
    """Return the same from a coroutine."""
    from asgiref.sync import sync_to_async

    return await sync_to_async(connection_pid.function)(alias)


@app.task("shop.connection_pid_in_process", runner="process")
def connection_pid_in_process(alias: str) -> int:
    """Return the same from a process of its own."""
    return connection_pid.function(alias)


PidTask = Task[Any, Any]
