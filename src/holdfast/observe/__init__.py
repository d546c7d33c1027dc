"""Telling people and machines what happens: the only place that logs or counts."""

from __future__ import annotations

from holdfast.observe.observer import Observer, Several, Silent
from holdfast.observe.outage import Outage

__all__ = ["Observer", "Outage", "Several", "Silent"]
