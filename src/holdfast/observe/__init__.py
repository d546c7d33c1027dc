"""Reports what happens, to people and programs: the only place that logs or counts."""

from __future__ import annotations

from holdfast.observe.observer import Observer, Outage, Reasons, Several, Silent
from holdfast.observe.unobserved import unobserved_reported

__all__ = ["Observer", "Outage", "Reasons", "Several", "Silent", "unobserved_reported"]
