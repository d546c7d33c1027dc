"""Crash runs with real processes: the queue under kill -9, frozen workers and cut lines.

``holdfast torture`` runs it against a store of your own, in a place of its own there. What
clients were told and what handlers did is written to plain files outside the queue; in the end
the history checker compares both with everything the store recorded.
"""

from __future__ import annotations

from holdfast.torture.outcome import Outcome
from holdfast.torture.plan import Plan
from holdfast.torture.run import torture

__all__ = ["Outcome", "Plan", "torture"]
