"""Where worker processes find the app: importing this module sets Django up."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from holdfast.contrib.django.configured import app  # needs the settings

__all__ = ["app"]
