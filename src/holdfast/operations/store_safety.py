"""Which settings of the store make it unsafe since they were changed while it runs.

Each report is a named lock with a text. It expires by itself when it is not repeated.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta

from holdfast.model.payload import clean
from holdfast.model.reserved import UNSAFE
from holdfast.operations.held import held
from holdfast.operations.quarantine import FaultReport
from holdfast.store import Store

UNSAFE_FOR = timedelta(minutes=1)
"""How long a check counts as failed after it was last reported."""
_HOLDER = "watch"


async def report_unsafe(store: Store, check: str, text: str) -> None:
    """Record that a check of the store fails."""
    with contextlib.suppress(Exception):  # the log has it as well
        await store.lock(UNSAFE + check, _HOLDER, UNSAFE_FOR, clean(text).encode())


async def report_safe(store: Store, check: str) -> None:
    """Record that a check of the store passes again."""
    with contextlib.suppress(Exception):  # it expires
        await store.lock(UNSAFE + check, _HOLDER, timedelta(0))


async def unsafe(store: Store) -> list[FaultReport]:
    """Return the checks of the store that fail since its settings were changed."""
    return [
        FaultReport(
            lock.name.removeprefix(UNSAFE),
            lock.data.decode("utf-8", "replace"),
            lock.until - UNSAFE_FOR,
        )
        for lock in await held(store, UNSAFE, UNSAFE_FOR)
    ]
