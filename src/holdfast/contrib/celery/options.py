"""The options of Celery's calls and tasks, as options of jobs and registrations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, cast

from holdfast.contrib.celery.conf import POOLS, Configuration
from holdfast.contrib.celery.exceptions import UnsupportedError
from holdfast.model.job import Priority
from holdfast.model.policy import MAX_ATTEMPTS
from holdfast.model.submission import SubmitOptions
from holdfast.store import LimitRule
from holdfast.tasks.options import TaskOptions

LEVELS = (Priority.BULK, Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL)
MOST_URGENT = 9

NO_EFFECT = frozenset(
    {"retry", "retry_policy", "ignore_result", "add_to_parent", "shadow", "root_id", "parent_id"}
)
"""Options of a call that are accepted and change nothing."""

NO_CALL = {
    "task_id": "ids are chosen by holdfast; use idempotency_key for one job per key",
    "soft_time_limit": "use time_limit: the timeout stops the task and the job fails",
    "routing_key": "name the queue",
    "exchange": "name the queue",
    "connection": "the job is written to the store of the app",
    "producer": "the job is written to the store of the app",
    "compression": "payloads are stored as they are",
    "replaced_task_nesting": "spawn jobs instead",
}

RATE = re.compile(r"(?P<count>\d+)(?:/(?P<unit>[smh]))?")
UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}

TASK_NO_EFFECT = frozenset(
    {
        "acks_late",
        "acks_on_failure_or_timeout",
        "ignore_result",
        "lazy",
        "reject_on_worker_lost",
        "send_events",
        "shared",
        "store_errors_even_if_ignored",
        "throws",
        "track_started",
        "trail",
    }
)
"""Options of a task that are accepted and change nothing."""

NO_TASK = {
    "soft_time_limit": "use time_limit: the timeout stops the task and the job fails",
    "after_return": "define the method in a class and give it as base",
    "pydantic": "annotate parameters of a holdfast task instead; it decodes into models",
    "backend": "results are stored with the job",
    "request_stack": "there is none",
}


def call_options(
    given: Mapping[str, Any], conf: Configuration, name: str, default_queue: str | None
) -> SubmitOptions:
    """Return the options of a job for those of ``apply_async``; links and expiry are elsewhere."""
    options: dict[str, Any] = {}
    for option, value in given.items():
        if value is None or option in NO_EFFECT or option in ("link", "link_error", "expires"):
            continue
        if option in NO_CALL:
            raise UnsupportedError(f"the option {option}", NO_CALL[option])
        if option == "serializer":
            _check_json(value)
        elif option in _TRANSLATED:
            ours, translate = _TRANSLATED[option]
            options[ours] = translate(value)
        elif option in SubmitOptions.__annotations__:
            options[option] = value
        else:
            raise UnsupportedError(f"the option {option}", "see the table of options")
    if "queue" not in options:
        options["queue"] = routed(conf, name) or default_queue or conf.task_default_queue
    return cast("SubmitOptions", options)


def routed(conf: Configuration, name: str) -> str | None:
    """Return the queue that ``task_routes`` gives to a task."""
    routes = conf.task_routes
    pairs: Iterable[Any] = routes.items() if isinstance(routes, Mapping) else routes
    for entry in pairs:
        if not isinstance(entry, tuple):
            raise UnsupportedError("a router function", "give task_routes as a mapping of names")
        pattern, target = entry
        if fnmatchcase(name, pattern):
            return str(target["queue"] if isinstance(target, Mapping) else target)
    return None


def expiry(value: object) -> float | str:
    """Return when a task may no longer start: seconds after the call, or an instant as text."""
    match value:
        case datetime():
            return _aware(value).isoformat()
        case timedelta():
            return value.total_seconds()
        case bool():
            raise UnsupportedError(f"expires={value}", "give seconds or a datetime")
        case int() | float():
            return value
        case _:
            raise UnsupportedError(f"expires={value!r:.60}", "give seconds or a datetime")


def task_options(given: Mapping[str, Any], conf: Configuration) -> TaskOptions:
    """Return the options of a registration for those of ``@app.task``."""
    retries = given.get("max_retries", 3)
    options: dict[str, Any] = {
        "max_attempts": MAX_ATTEMPTS if retries is None else min(retries + 1, MAX_ATTEMPTS),
        "runner": _runner(given.get("runner"), conf),
        "permanent": (Exception,),
        "timeout": given.get("time_limit") or conf.task_time_limit,
        "limit": _rate(given.get("rate_limit") or conf.task_default_rate_limit),
    }
    for name in ("queue", "lifetime", "lease", "concurrency", "key_limit", "memory_limit"):
        options[name] = given.get(name)
    if given.get("priority") is not None:
        options["priority"] = level(given["priority"])
    return cast("TaskOptions", {name: value for name, value in options.items() if value})


def check_task_options(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse options that this layer does not have, by name."""
    if given.get("serializer") is not None:
        _check_json(given["serializer"])
    accepted = {*known, *TASK_NO_EFFECT, "serializer"}
    for name in given:
        if name not in accepted:
            raise UnsupportedError(
                f"the task option {name}", NO_TASK.get(name, "see the table of options")
            )


def level(priority: object) -> Priority:
    """Return the level of a priority from 0 to 9, of which 9 is the most urgent."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise UnsupportedError(f"priority={priority!r:.60}", "give a number from 0 to 9")
    if not 0 <= priority <= MOST_URGENT:
        raise UnsupportedError(f"priority={priority}", "give a number from 0 to 9")
    return LEVELS[priority // 2]


def _rate(given: object) -> LimitRule | None:
    if given is None:
        return None
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = f"{given:g}/s"
    found = RATE.fullmatch(given) if isinstance(given, str) else None
    if found is None or found["count"] == "0":
        raise UnsupportedError(f"rate_limit={given!r:.60}", "write 10/s, 100/m or 1000/h")
    return LimitRule(rate=int(found["count"]), per=UNITS[found["unit"] or "s"])


def _runner(given: object, conf: Configuration) -> str:
    if given is not None:
        return str(given)
    if conf.worker_pool not in POOLS:
        raise UnsupportedError(
            f"worker_pool={conf.worker_pool!r:.60}",
            "choose threads or prefork; coroutines are tasks of holdfast itself",
        )
    return POOLS[conf.worker_pool]


def _check_json(serializer: object) -> None:
    if serializer != "json":
        raise UnsupportedError(f"serializer={serializer!r:.60}", "payloads and results are JSON")


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _same(value: Any) -> Any:
    return value


_TRANSLATED = {
    "countdown": ("delay", _same),
    "eta": ("scheduled_at", _aware),
    "time_limit": ("timeout", _same),
    "priority": ("priority", level),
}
