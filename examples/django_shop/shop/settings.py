"""The settings: SQLite unless $DATABASE_URL names a PostgreSQL database."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = True
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    *(["django_tasks"] if django.VERSION < (6,) else []),
    "holdfast.contrib.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
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


def database(url: str) -> dict[str, object]:
    """Return a database of Django for a URL."""
    if not url:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "shop.sqlite3"}
    at = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": at.path.removeprefix("/"),
        "USER": at.username or "",
        "PASSWORD": at.password or "",
        "HOST": at.hostname or "",
        "PORT": str(at.port or ""),
    }


DATABASES = {"default": database(os.environ.get("DATABASE_URL", ""))}
TASKS = {
    "default": {
        "BACKEND": "holdfast.contrib.django.HoldfastBackend",
        "OPTIONS": {"max_attempts": 5, "timeout": 60},
    }
}
