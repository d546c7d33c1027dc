"""Where the records of one namespace are: under kinds of its own, or under scopes that name it."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.model.reserved import LIMIT_DECLARATIONS, LIMIT_OVERRIDES
from holdfast.store.namespaces import DIVIDER
from holdfast.store.values import Record, RecordWrite

QUEUE = "queue:"
"""The prefix of the scope of a queue's limit."""
BY_SCOPE = frozenset({LIMIT_OVERRIDES, LIMIT_DECLARATIONS})
"""Kinds whose keys are scopes of limits, which name the namespace: they are the same in all."""


class RecordNames:
    """Turns kinds and keys of a namespace into stored ones, and back."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._prefix = QUEUE + namespace + DIVIDER

    def is_by_scope(self, kind: str) -> bool:
        """Whether the namespace is in the keys, not in the kind."""
        return bool(self._namespace) and kind in BY_SCOPE

    def kind(self, kind: str) -> str:
        """Return the stored kind."""
        if not self._namespace or kind in BY_SCOPE:
            return kind
        return f"{kind}@{self._namespace}"

    def key(self, kind: str, key: str) -> str:
        """Return the stored key."""
        return self._prefix + key.removeprefix(QUEUE) if self.is_by_scope(kind) else key

    def write(self, write: RecordWrite) -> RecordWrite:
        """Return a write as it is stored."""
        return replace(write, kind=self.kind(write.kind), key=self.key(write.kind, write.key))

    def shown(self, record: Record, kind: str) -> Record:
        """Return a stored record as the namespace knows it."""
        if not self.is_by_scope(kind):
            return replace(record, kind=kind)
        return replace(record, kind=kind, key=QUEUE + record.key.removeprefix(self._prefix))
