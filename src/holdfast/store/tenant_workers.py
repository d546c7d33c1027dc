"""Workers as one namespace sees them: those that serve its queues, with its own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import json
from msgspec.structs import replace

from holdfast.model.workers import WorkerInfo
from holdfast.runtime.pace import Pace
from holdfast.store.damage import readable
from holdfast.store.values import NamedLock


async def tenant_workers(
    locks: Iterable[NamedLock], within: Callable[[str], bool], shown: Callable[[str], str]
) -> list[NamedLock]:
    """Return the locks of workers with a queue ``within`` the namespace, names as ``shown``.

    Other tasks run in between: a thousand workers may announce 64 KiB of names each.
    """
    pace, found = Pace(), list[NamedLock]()
    for lock in locks:
        await pace.turn()
        found += _seen(lock, within, shown)
    return found


def _seen(
    lock: NamedLock, within: Callable[[str], bool], shown: Callable[[str], str]
) -> Iterator[NamedLock]:
    for info in readable([lock.data], _worker.decode):
        queues = tuple(shown(queue) for queue in info.queues if within(queue))
        jobs = [job for job in info.running_jobs if within(job.queue)]
        own = tuple(replace(job, queue=shown(job.queue)) for job in jobs)
        if queues:
            seen = replace(info, queues=queues, running_jobs=own)
            yield replace(lock, data=json.encode(seen))


_worker = json.Decoder(WorkerInfo)
