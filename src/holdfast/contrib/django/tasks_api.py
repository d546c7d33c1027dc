"""Django's tasks: ``django.tasks`` from Django 6 on, else the backport ``django_tasks``."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

PACKAGE = "django.tasks" if find_spec("django.tasks") else "django_tasks"


def _module(name: str) -> Any:
    return import_module(f"{PACKAGE}{name}")


_exceptions = _module(".exceptions")
_base = _module(".base")

BaseTaskBackend: Any = _module(".backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
_json: Any = import_module("django.utils.json" if PACKAGE == "django.tasks" else f"{PACKAGE}.utils")
normalize_json: Any = _json.normalize_json
signals: Any = _module(".signals")
task_backends: Any = _module("").task_backends
