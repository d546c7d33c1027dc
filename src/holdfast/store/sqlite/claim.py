"""The claim verb: takes ready jobs within the limits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.model.job import Job
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.decode import read_claimed
from holdfast.store.sqlite.limits import SQLiteLimits
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import Claim


def claim(tx: Transaction, want: Claim) -> list[Job]:
    """Claim ready jobs; see ``Store.claim``."""
    chosen = list(_chosen(tx, want))
    if not chosen:
        return []
    first = tx.number + 1
    tx.number += len(chosen)
    seqs = msgspec.json.encode(chosen).decode()
    tx.execute(statement("journal_claims"), (first, seqs, tx.instant, want.worker))
    tx.execute(statement("claim"), (first, seqs, tx.instant, want.token, want.worker))
    tx.journalled(tx.instant, first, tx.number)
    jobs = read_claimed(tx.connection, chosen, token=want.token, worker=want.worker, now=tx.now)
    tx.counters.claimed(jobs, tx.now)
    tx.claimed_seqs.update(zip([job.id for job in jobs], chosen, strict=True))
    return jobs


def _chosen(tx: Transaction, want: Claim) -> Iterator[int]:
    """Yield the ``seq`` of each job to claim, in order of service."""
    limits = SQLiteLimits.of(tx)
    types = None if want.types is None else msgspec.json.encode(want.types).decode()
    paused = {name for (name,) in tx.execute(statement("paused"))}
    room = want.limit
    for queue in dict.fromkeys(want.queues):
        if queue in paused or room <= 0:
            continue
        if limits is None:
            ready = [seq for seq, _ in tx.execute(statement("ready"), (queue, types, room))]
        else:
            ready = list(limits.admitted(queue, types, room))
        room -= len(ready)
        yield from ready
    if limits is not None:
        limits.write()
