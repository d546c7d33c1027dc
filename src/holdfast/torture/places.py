"""Names that every process of a run knows."""

from __future__ import annotations

QUEUE = "default"
LINE = "line"
"""A queue that one worker serves and one producer fills: its order can be judged."""

CRON = "* * * * *"
TICK = "tick"
