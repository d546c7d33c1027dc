"""holdfast in a Django project; the settings are in ``tests.contrib.django_settings``."""

from __future__ import annotations

import os

import django

SETTINGS = "DJANGO_SETTINGS_MODULE"

os.environ[SETTINGS] = "tests.contrib.django_settings"
try:
    django.setup()
finally:
    del os.environ[SETTINGS]  # programs that other tests start are no part of this project
