"""Large contents are encrypted and decrypted beside the event loop."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Limits, ValidationError
from holdfast.encryption.envelope import unwrap, wrap
from holdfast.model.policy import MEBIBYTE
from holdfast.store import Claim

if TYPE_CHECKING:
    from holdfast.encryption import KeyRing
    from tests.servers import Valkey

SIZE = 15 * MEBIBYTE


async def test_large_contents_keep_the_loop_free(ring: KeyRing) -> None:
    limits = Limits(payload_bytes=16 * MEBIBYTE)
    async with Holdfast("memory://", keys=ring, limits=limits) as app:
        began = time.thread_time()
        submitted = await app.submit("t", b"x" * SIZE)
        (read,) = await app.store.get([submitted.job_id])
        (claimed,) = await app.store.claim(
            Claim(queues=("default",), limit=1, worker="w", token="x")
        )
        took = time.thread_time() - began

    assert read is not None
    assert [SIZE, SIZE] == [len(read.payload), len(claimed.payload)]
    assert took < 0.03  # of this thread, for all three; 0.14 s when it did the work itself


def test_envelopes_of_any_size_and_form_are_read() -> None:
    for size in (0, 1, 2, 3, 196_607, 196_608, 196_609, 1_000_000):
        data = bytes(range(256)) * (size // 256 + 1)
        envelope = wrap("k", data[:size])

        assert ("k", data[:size]) == unwrap(envelope)
        assert ("k", data[:size]) == unwrap(envelope[:-1] + b' , "more": 1}')
    assert unwrap(wrap("k", b"abc")[:-4] + b'*"}') is None


def test_size_of_what_is_encrypted_is_known_without_encrypting_it(ring: KeyRing) -> None:
    for size in (0, 1, 2, 3, 1000, 196_608):
        assert len(ring.encrypt(b"x" * size, "p")) == ring.encrypted_size(size)


@pytest.mark.redis
async def test_large_job_is_measured_for_redis_without_encrypting_it(
    ring: KeyRing, valkey_server: Valkey
) -> None:
    limits = Limits(payload_bytes=16 * MEBIBYTE)
    url = f"{valkey_server.url}?prefix=u{uuid.uuid4().hex[:10]}"
    async with Holdfast(url, keys=ring, limits=limits) as app:
        size_fault = app.store.capabilities.size_fault
        assert size_fault is not None
        small = await app.submit("t", b"x" * 5_700_000)  # 10.1 MB of 10 MiB, as it is stored
        with pytest.raises(ValidationError, match=r"10\.0 MB"):
            await app.submit("t", b"x" * 6_000_000)
        (read,) = await app.store.get([small.job_id])
        assert read is not None
        began = time.thread_time()
        fits = size_fault(read, len(read.payload)) is None
        took = time.thread_time() - began

    assert (True, 5_700_000) == (fits, len(read.payload))
    assert took < 0.003  # 0.02 s with a copy of it, encrypted
