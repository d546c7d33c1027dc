"""Namespaces in the names of queues: ``acme/mail`` is the queue ``mail`` of ``acme``.

Queues without a slash are those of the namespace without a name. Stores order names by code
points, so the queues of a namespace are a range.
"""

from __future__ import annotations

import msgspec

DIVIDER = "/"
LAST = chr(0x10FFFF)
"""No name of a queue is after this text."""
_AFTER = chr(ord(DIVIDER) + 1)


class QueueRange(msgspec.Struct, frozen=True, gc=False):
    """Names from ``low`` and before ``high``; ``plain``: only those without a slash."""

    low: str = ""
    high: str = LAST
    plain: bool = False


def queue_range(namespace: str | None) -> QueueRange:
    """Return where the queues of a namespace are; None stands for every namespace."""
    if namespace:
        return QueueRange(namespace + DIVIDER, namespace + _AFTER)
    return QueueRange(plain=namespace is not None)


def is_within(queue: str, namespace: str | None) -> bool:
    """Whether a queue belongs to a namespace; None stands for every namespace."""
    if namespace:
        return queue.startswith(namespace + DIVIDER)
    return namespace is None or DIVIDER not in queue


def namespace_of(queue: str) -> str:
    """Return the namespace of a queue."""
    return queue.partition(DIVIDER)[0] if DIVIDER in queue else ""
