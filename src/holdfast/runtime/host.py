"""The host of this process."""

from __future__ import annotations

import socket
import time
from datetime import timedelta

HOST = socket.gethostname()


def uptime() -> timedelta:
    """Return how long ago this host started."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    seconds = time.monotonic() if clock is None else time.clock_gettime(clock)
    return timedelta(seconds=seconds)
