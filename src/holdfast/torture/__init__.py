"""Crash runs with real processes: the queue under kill -9, frozen workers and cut lines.

What clients were told and what handlers did is written to plain files outside the queue; in the
end the history checker compares both with everything the store recorded. ``run.torture`` is the
whole of it. Nothing is imported here: every process of a run pays for it.
"""
