"""When a burst is over: nothing is ready or held back by a limit; what is due later stays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.job import State
from holdfast.operations.dependents import release_dependents
from holdfast.store import Search, Store
from holdfast.worker.rates import POLL

SOON = timedelta(milliseconds=10)
"""When what was found has to be waited for; whatever becomes ready rings before."""
PAGE = 1000


async def more_within(
    store: Store, queues: Sequence[str], types: Sequence[str]
) -> timedelta | None:
    """Return how long to wait for more work after a claim brought none; None: there is none."""
    promoted = await store.promote(PAGE)
    released = await release_dependents(store)  # what this or another promoter has just joined, too
    if released or promoted.count or promoted.ripe:
        return SOON
    paused = {queue.name for queue in await store.queues() if queue.paused}
    served = tuple(queue for queue in queues if queue not in paused)
    if not served or not types:
        return None
    ready = Search(queues=served, types=tuple(types), states=(State.SCHEDULED,), limit=1)
    return POLL if (await store.find(ready)).jobs else None
