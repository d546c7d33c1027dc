"""holdfast in a Django project; the settings are in ``tests.contrib.django_settings``."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.contrib.django_settings")
django.setup()
