"""A call is repeated while the store is away, and then what kept it away is told."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from holdfast.errors import StoreUnavailableError
from holdfast.operations.submitter import patiently
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.randomness import Randomness


async def test_a_pause_that_took_too_long_does_not_hide_why_the_store_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse() -> None:
        await asyncio.sleep(0.001)
        raise StoreUnavailableError("cannot be reached")

    monkeypatch.setattr(GrowingDelay, "next", lambda _: 0.05)
    asyncio.get_running_loop().call_later(0.02, time.sleep, 0.2)

    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await patiently(refuse, Randomness(), timedelta(seconds=0.1))
