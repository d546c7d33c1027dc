"""Encryption at rest: what a job says is sealed before it reaches a store."""

from __future__ import annotations

from holdfast.encryption.key_ring import KeyRing
from holdfast.encryption.store import sealed

__all__ = ["KeyRing", "sealed"]
