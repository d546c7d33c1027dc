"""The parameters of statements that read one namespace."""

from __future__ import annotations

import msgspec

from holdfast.store.namespaces import queue_range


def bounds(namespace: str | None) -> dict[str, object]:
    """Return low, high and plain: where the queues of a namespace are."""
    return msgspec.structs.asdict(queue_range(namespace))
