"""Telling people and machines what happens: the only place that logs or counts."""

from __future__ import annotations

from holdfast.observe.observer import Observer, Several, Silent

__all__ = ["Observer", "Several", "Silent"]
