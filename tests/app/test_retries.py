"""A call is repeated while the store is unavailable, then the newest error is raised."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from holdfast.errors import StoreUnavailableError
from holdfast.operations.batcher import with_retries
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.randomness import Randomness


async def test_pause_that_takes_too_long_does_not_hide_the_error_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse() -> None:
        await asyncio.sleep(0.001)  # a call takes its time before it fails
        raise StoreUnavailableError("cannot be reached")

    monkeypatch.setattr(GrowingDelay, "next", lambda _: 0.05)
    asyncio.get_running_loop().call_later(0.02, time.sleep, 0.2)

    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await with_retries(refuse, Randomness(), timedelta(seconds=0.1))
