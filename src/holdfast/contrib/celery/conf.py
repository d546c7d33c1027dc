"""``app.conf``: the settings of Celery that this layer reads, accepts or refuses."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from holdfast.contrib.celery.exceptions import UnsupportedError

READ: dict[str, Any] = {
    "broker_url": None,
    "result_backend": None,
    "timezone": "UTC",
    "enable_utc": True,
    "beat_schedule": {},
    "include": (),
    "imports": (),
    "task_always_eager": False,
    "task_eager_propagates": False,
    "task_default_queue": "default",
    "task_routes": {},
    "task_time_limit": None,
    "task_default_rate_limit": None,
    "task_ignore_result": False,
    "worker_pool": "threads",
}
"""Settings that change what happens, with their defaults."""

ONLY: dict[str, tuple[object, ...]] = {
    "task_serializer": ("json",),
    "result_serializer": ("json",),
    "event_serializer": ("json",),
    "accept_content": (["json"], ("json",), {"json"}, ["application/json"]),
    "result_accept_content": (["json"], ("json",), None),
}
"""Settings with one possible value: payloads and results are JSON."""

ALWAYS_SO = frozenset(
    {
        "task_acks_late",
        "task_reject_on_worker_lost",
        "task_acks_on_failure_or_timeout",
        "task_track_started",
        "task_publish_retry",
        "task_publish_retry_policy",
        "task_store_errors_even_if_ignored",
        "task_send_sent_event",
        "worker_send_task_events",
        "worker_prefetch_multiplier",
        "worker_cancel_long_running_tasks_on_connection_loss",
        "worker_hijack_root_logger",
        "worker_redirect_stdouts",
        "worker_disable_rate_limits",
        "broker_connection_retry",
        "broker_connection_retry_on_startup",
        "broker_connection_max_retries",
        "broker_heartbeat",
        "broker_pool_limit",
        "broker_transport_options",
        "redis_max_connections",
        "redis_socket_timeout",
        "result_extended",
        "result_persistent",
        "result_backend_transport_options",
        "task_create_missing_queues",
        "beat_scheduler",
        "beat_schedule_filename",
        "beat_max_loop_interval",
        "beat_sync_every",
        "database_table_names",
        "cache_backend",
    }
)
"""Settings that are accepted and change nothing: the store does it always, or has no use for it."""

INSTEAD = {
    "task_soft_time_limit": "use time_limit: the timeout stops the task and the job fails",
    "task_annotations": "give the options to the task itself",
    "task_queues": "queues need no declaration: name them in routes and in holdfast worker -q",
    "task_queue_max_priority": "jobs have five levels, and priority 0 to 9 maps to them",
    "task_protocol": "there is one protocol",
    "result_expires": "give Celery(..., retention=Retention(...)) or set it in holdfast.toml",
    "task_store_eager_result": "an eager task returns its result directly",
    "worker_concurrency": "start the worker with holdfast worker --slots N",
    "worker_max_tasks_per_child": "memory_limit of a task bounds the memory of its process",
    "worker_max_memory_per_child": "memory_limit of a task bounds the memory of its process",
}

OLD_NAMES = {
    "BROKER_URL": "broker_url",
    "CELERY_BROKER_URL": "broker_url",
    "CELERY_RESULT_BACKEND": "result_backend",
    "CELERYBEAT_SCHEDULE": "beat_schedule",
    "CELERY_TIMEZONE": "timezone",
    "CELERY_ENABLE_UTC": "enable_utc",
    "CELERY_ALWAYS_EAGER": "task_always_eager",
    "CELERY_DEFAULT_QUEUE": "task_default_queue",
    "CELERY_ROUTES": "task_routes",
    "CELERY_IMPORTS": "imports",
    "CELERY_TASK_SERIALIZER": "task_serializer",
    "CELERY_RESULT_SERIALIZER": "result_serializer",
    "CELERY_ACCEPT_CONTENT": "accept_content",
}

KNOWN = frozenset({*READ, *ONLY, *ALWAYS_SO, *INSTEAD, *OLD_NAMES})
"""The names that are read from a module of settings."""

NOT_STORES = ("amqp", "pyamqp", "sqs", "kafka", "confluentkafka", "azureservicebus", "qpid")
STORES = "set HOLDFAST_URL to a store: sqlite:///jobs.db, postgresql://... or redis://..."
"""What to use in place of another broker."""

POOLS = {"threads": "thread", "solo": "thread", "prefork": "process", "processes": "process"}


class Configuration:
    """The settings of an app, as attributes and items. An unknown one is refused by name."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.__dict__["_values"] = {
            name: value.copy() if isinstance(value, dict) else value for name, value in READ.items()
        }
        self.__dict__["_changed"] = changed

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = self.__dict__["_values"]
        if name in values:
            return values[name]
        if name in ONLY:
            return ONLY[name][0]
        if name in ALWAYS_SO:
            return None
        raise AttributeError(_refusal(name))

    def __setattr__(self, name: str, value: object) -> None:
        name = OLD_NAMES.get(name, name)
        if name in ONLY:
            if value not in ONLY[name]:
                raise UnsupportedError(f"{name}={value!r:.60}", "payloads and results are JSON")
        elif name in READ:
            self.__dict__["_values"][name] = value
            self.__dict__["_changed"](name)
        elif name not in ALWAYS_SO:
            raise UnsupportedError(f"the setting {name}", _instead(name))

    __getitem__ = __getattr__
    __setitem__ = __setattr__

    def get(self, name: str, default: object = None) -> Any:
        """Return a setting, or the default when there is none of that name."""
        try:
            return self.__getattr__(name)
        except AttributeError:
            return default

    def update(self, given: Mapping[str, object] | None = None, **more: object) -> None:
        """Change several settings."""
        for name, value in {**(given or {}), **more}.items():
            self[name] = value


def settings_of(source: object, namespace: str | None) -> dict[str, object]:
    """Return the settings in a module, an object or a mapping; with a namespace, only its own."""
    if isinstance(source, str):
        source = _imported(source)
    if isinstance(source, Mapping):
        found = dict(source)
    else:
        names = dir(source) if not isinstance(source, ModuleType) else vars(source)
        found = {name: getattr(source, name) for name in names if not name.startswith("_")}
    if namespace:
        prefix = f"{namespace}_"
        return {
            name.removeprefix(prefix).lower(): value
            for name, value in found.items()
            if name.startswith(prefix)
        }
    return {name: value for name, value in found.items() if name in KNOWN}


def broker_scheme(url: object) -> str:
    """Return what kind of broker a URL leads to."""
    return str(url).partition("://")[0].removeprefix("sqla+").partition("+")[0]


def _imported(path: str) -> object:
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        if not module:
            raise
        found = importlib.import_module(module)
    return getattr(found, name) if name else found


def _instead(name: str) -> str:
    return INSTEAD.get(name, "see the table of settings in the documentation")


def _refusal(name: str) -> str:
    return str(UnsupportedError(f"the setting {name}", _instead(name)))
