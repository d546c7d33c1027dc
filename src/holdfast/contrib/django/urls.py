"""The dashboard: ``path("jobs/", include("holdfast.contrib.django.urls"))``."""

from __future__ import annotations

from django.urls import re_path

from holdfast.contrib.django.dashboard import board

app_name = "holdfast"
urlpatterns = [re_path(r"^(?P<path>.*)$", board, name="dashboard")]
