"""The store in memory: the reference for all others, and a test double."""

from holdfast.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
