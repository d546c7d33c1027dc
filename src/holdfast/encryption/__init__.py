"""Encryption at rest: job contents are encrypted before they reach a store."""

from __future__ import annotations

from holdfast.encryption.key_ring import KeyRing
from holdfast.encryption.marker import mark_encrypted, require_keys
from holdfast.encryption.store import encrypted

__all__ = ["KeyRing", "encrypted", "mark_encrypted", "require_keys"]
