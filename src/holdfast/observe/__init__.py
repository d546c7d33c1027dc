"""Telling people and machines what happens: the only place that logs or counts."""

from __future__ import annotations

from holdfast.observe.observer import Observer, Silent

__all__ = ["Observer", "Silent"]
