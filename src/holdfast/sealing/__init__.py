"""Encryption at rest: what a job says is sealed before it reaches a store."""

from __future__ import annotations

from holdfast.sealing.keys import KeyRing
from holdfast.sealing.store import sealed

__all__ = ["KeyRing", "sealed"]
