"""The settings of the Django project of the tests; a fixture names the PostgreSQL server."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from holdfast import Backoff, BackoffKind

SECRET_KEY = "of the tests"
USE_TZ = True
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
ROOT_URLCONF = "tests.contrib.django.urls"
LOGGING_CONFIG = None
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "holdfast.contrib.django",
    "tests.contrib.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def database(dsn: str) -> dict[str, Any]:
    """Return where a PostgreSQL database is, in Django's words."""
    given = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    return {name: str(given.get(of, "")) for name, of in names.items()}


DATABASES: dict[str, dict[str, Any]] = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "postgres": {
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": None,
        **database(os.environ.get("SHOP_DATABASE", "")),
    },
}
TASKS = {
    "default": {
        "BACKEND": "holdfast.contrib.django.HoldfastBackend",
        "QUEUES": ["default", "queue_1"],
        "OPTIONS": {
            "backoff": Backoff(
                strategy=BackoffKind.CONSTANT, initial_delay=timedelta(milliseconds=10)
            ),
            "tasks": {"tests.contrib.shop.tasks.fail_once_allowed": {"max_attempts": 1}},
        },
    },
    "any_queue": {"BACKEND": "holdfast.contrib.django.HoldfastBackend", "QUEUES": []},
}
HOLDFAST: dict[str, Any] = {}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
