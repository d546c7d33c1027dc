"""System checks: ``manage.py check`` reports faults of the setting ``HOLDFAST``."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from holdfast.contrib.django.configuration import read_settings, store_url
from holdfast.errors import HoldfastError
from holdfast.observe.redaction import redacted


def check_backends(app_configs: object = None, **_: Any) -> list[checks.CheckMessage]:
    """Check ``TASKS`` where nobody else does: the backport, when it is not installed as well."""
    from holdfast.contrib.django.tasks_api import PACKAGE, task_backends

    if PACKAGE == "django.tasks" or apps.is_installed(PACKAGE):
        return []
    return [message for backend in task_backends.all() for message in backend.check()]


def check_settings(app_configs: object = None, **_: Any) -> list[checks.CheckMessage]:
    """Check the settings, the URL of the store and the profiles of queues."""
    from holdfast.model.profiles import profile_named
    from holdfast.store import open_store

    try:
        given = read_settings()
        url = store_url()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="holdfast.E001")]
    found: list[checks.CheckMessage] = []
    try:
        for profile in given.queues.values():
            profile_named(profile)
        if not url.startswith(("http://", "https://")):
            open_store(url)
        if url.startswith("memory:"):
            message = "HOLDFAST['URL'] keeps the jobs in memory: they end with their process"
            found.append(checks.Warning(message, id="holdfast.W001"))
    except (HoldfastError, ValueError) as error:
        found.append(checks.Error(redacted(f"HOLDFAST: {error}"), id="holdfast.E002"))
    return found
