"""The store's time for jobs with a delay, which count from it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast.model.submission import Submission
from holdfast.store import Store

Persist = Callable[[Callable[[], Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]]
"""Repeats a call while the store is unavailable."""


async def refresh_for_delays(
    store: Store, persist: Persist, submissions: Sequence[Submission]
) -> None:
    """Read the store's time if that is due and a delay counts from it.

    The clock may have been set while this process was idle.
    """
    if any(submission.delay is not None for submission in submissions):
        await persist(store.refresh)
