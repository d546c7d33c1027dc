"""Handing out ready jobs, as far as the limits leave room."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.job import Job
from holdfast.store._shapes import Claim
from holdfast.store.sqlite.gate import Gate
from holdfast.store.sqlite.rows import Row, read_jobs
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.writer import Transaction


def claim(tx: Transaction, want: Claim) -> list[Job]:
    """Take ready jobs; see ``Store.claim``."""
    seqs = list(_chosen(tx, want))
    if not seqs:
        return []
    first = tx.number + 1
    tx.number += len(seqs)
    rows = [
        (seq, first + place, want.token, want.worker, tx.instant) for place, seq in enumerate(seqs)
    ]
    tx.many("claim", rows)
    jobs = read_jobs(tx.connection, seqs)
    tx.many("journal", [_edge(tx, row, job) for row, job in zip(rows, jobs, strict=True)])
    for job in jobs:
        tx.ledger.claimed(job, tx.now)
    tx.told = True
    return jobs


def _chosen(tx: Transaction, want: Claim) -> Iterator[int]:
    gate = Gate.of(tx)
    types = None if want.types is None else msgspec.json.encode(want.types).decode()
    paused = {name for (name,) in tx.execute(statement("paused"))}
    room = want.limit
    for queue in dict.fromkeys(want.queues):
        if queue in paused or room <= 0:
            continue
        if gate is None:
            ready = tx.execute(statement("ready"), (queue, types, room)).fetchall()
            room -= len(ready)
            yield from (seq for (seq,) in ready)
        else:
            for seq in gate.admitted(queue, types, room):
                room -= 1
                yield seq


def _edge(tx: Transaction, row: Row, job: Job) -> Row:
    """The audit record of a claim, as a row of the journal."""
    seq, number, _, worker, instant = row
    return (
        number,
        seq,
        "claim",
        "SCHEDULED",
        "RUNNING",
        instant,
        "claimed",
        job.attempt,
        job.lease_version,
        worker,
        None,
    )
