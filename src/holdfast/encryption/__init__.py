"""Encryption at rest: job contents are encrypted before they reach a store."""

from __future__ import annotations

from holdfast.encryption.key_ring import KeyRing
from holdfast.encryption.store import encrypted

__all__ = ["KeyRing", "encrypted"]
