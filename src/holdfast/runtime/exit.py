"""Ends a process that has nothing left to do, although a task or a thread keeps it alive."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

LINGER = 5.0
"""How long tasks and threads of handlers may keep a stopped process alive, in seconds."""
MOST_NAMED = 5


class ExitGuard:
    """Exits the process when ``disarm`` is not called soon after ``arm``."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def arm(self, held_by: Sequence[str]) -> None:
        """Exit in a few seconds, and report what still runs."""
        named = ", ".join(held_by[:MOST_NAMED]) + (" ..." if len(held_by) > MOST_NAMED else "")
        thread = threading.Thread(target=self._wait, args=(named,), daemon=True)
        thread.start()

    def disarm(self) -> None:
        """Let the process end by itself."""
        self._ended.set()

    def _wait(self, named: str) -> None:
        if not self._ended.wait(LINGER):
            line = f"holdfast: exits although this still runs: {named}\n"
            os.write(sys.stderr.fileno(), line.encode())  # a buffered write could wait for a lock
            os._exit(1)


def exit_despite_threads() -> None:
    """Exit in a few seconds if threads that a handler started keep the interpreter waiting."""
    main = threading.main_thread()
    left = [t for t in threading.enumerate() if t is not main and not t.daemon]
    if left:
        ExitGuard().arm([f"thread {thread.name}" for thread in left])
