"""The Django application: add ``holdfast.contrib.django`` to INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib.django.checks import check_backends, check_settings
from holdfast.contrib.django.configuration import read_settings
from holdfast.contrib.django.configured import app
from holdfast.contrib.django.connections import close_before_destroying


class HoldfastConfig(AppConfig):
    """Imports the modules of tasks of every installed application."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Register the checks and the tasks, and leave the database before a test run ends."""
        checks.register(check_settings)
        if getattr(settings, "TASKS", None):
            checks.register(check_backends)
        if (alias := read_settings().database) in connections.settings:
            close_before_destroying(alias, app.sync.close)
        for module in read_settings().autodiscover:
            autodiscover_modules(module)
