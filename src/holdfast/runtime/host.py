"""The host of this process."""

from __future__ import annotations

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

HOST = socket.gethostname()


def memory() -> int:
    """Return how many bytes this process uses; where the system does not say, the most it used."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource  # there is none on Windows, and no worker either

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def uptime() -> timedelta:
    """Return how long ago this host started."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    seconds = time.monotonic() if clock is None else time.clock_gettime(clock)
    return timedelta(seconds=seconds)
