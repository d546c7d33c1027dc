"""No process outlives the run it belongs to, however that ends."""

from __future__ import annotations

import os
import threading
import time

LOOK = 0.5


def die_with_parent() -> None:
    """Have this process end when the one that started it is gone."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)
