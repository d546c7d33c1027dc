"""The only source of randomness: ids, tokens and jitter. A test or a simulation seeds it."""

from __future__ import annotations

import os
import random


class Randomness:
    """Random ids and numbers; unpredictable unless a seed is given."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._bytes = os.urandom if seed is None else self._random.randbytes

    def uuid(self) -> str:
        """Return a random UUID, version 4."""
        return _uuid(self._bytes(16).hex())

    def uuids(self, count: int) -> list[str]:
        """Return many with one system call.

        They share their first block, so that a store's index keeps them together and writes one
        page instead of one for each. Each has 90 random bits of its own.
        """
        digits = self._bytes(4 + 12 * count).hex()
        block = digits[:8]
        return [_uuid(block + digits[at : at + 24]) for at in range(8, len(digits), 24)]

    def token(self) -> str:
        """Return a unique name."""
        return self._bytes(16).hex()

    def jitter(self) -> float:
        """Return a number in [-1, 1]."""
        return self._random.uniform(-1.0, 1.0)

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()


def _uuid(h: str) -> str:
    # Formatted here because a batch needs a thousand: the uuid module takes twice as long.
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:]}"


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
