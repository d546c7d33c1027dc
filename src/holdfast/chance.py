"""The only source of chance: ids, tokens and jitter. A test or a simulation seeds it."""

from __future__ import annotations

import os
import random

_FREE = ~(0xF000 << 64 | 0xC000 << 48)
"""The bits of a UUID that are left to chance."""
_VERSION_4 = 0x4000 << 64 | 0x8000 << 48


class Chance:
    """Random ids and numbers; unpredictable unless a seed is given."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._bytes = os.urandom if seed is None else self._random.randbytes

    def uuid(self) -> str:
        """Return a random UUID, version 4."""
        number = int.from_bytes(self._bytes(16)) & _FREE | _VERSION_4
        text = f"{number:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self) -> str:
        """Return a name nobody else will come up with."""
        return self._bytes(16).hex()

    def jitter(self) -> float:
        """Return a number in [-1, 1]."""
        return self._random.uniform(-1.0, 1.0)

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()
