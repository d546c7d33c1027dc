"""The store in a dict: reference and test double; nothing survives the process."""

from holdfast.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
