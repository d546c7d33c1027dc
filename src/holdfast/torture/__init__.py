"""Crash runs with real processes: kill -9, frozen workers and cut connections under load.

The responses that clients received and the effects of handlers are written to plain files
outside the queue; at the end the history checker compares both with every audit record.
``run.torture`` is the entry point. Nothing is imported here, because every process would pay.
"""
