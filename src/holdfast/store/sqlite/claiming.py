"""Handing out ready jobs, as far as the limits leave room."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.job import Job
from holdfast.store._shapes import Claim
from holdfast.store.sqlite.decoding import read_jobs
from holdfast.store.sqlite.gate import Gate
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.values import NOTHING, Row
from holdfast.store.sqlite.writer import Transaction


def claim(tx: Transaction, want: Claim) -> list[Job]:
    """Take ready jobs; see ``Store.claim``."""
    chosen = list(_chosen(tx, want))
    if not chosen:
        return []
    first = tx.number + 1
    tx.number += len(chosen)
    tx.many(
        "claim",
        [
            (seq, number, want.token, want.worker, tx.instant)
            for number, (seq, _) in enumerate(chosen, first)
        ],
    )
    jobs = read_jobs(tx.connection, [seq for seq, _ in chosen])
    tx.journal(
        [
            _edge(tx, number, place, job)
            for number, (place, job) in enumerate(zip(chosen, jobs, strict=True), first)
        ]
    )
    for job in jobs:
        tx.ledger.claimed(job, tx.now)
    return jobs


def _chosen(tx: Transaction, want: Claim) -> Iterator[tuple[int, int]]:
    """Yield the number and the place of each job to take."""
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
            yield from ready
        else:
            for place in gate.admitted(queue, types, room):
                room -= 1
                yield place


def _edge(tx: Transaction, number: int, place: tuple[int, int], job: Job) -> Row:
    """The audit record of a claim, as a row of the journal."""
    return (
        number,
        *place,
        "claim",
        "SCHEDULED",
        "RUNNING",
        tx.instant,
        "claimed",
        job.attempt,
        job.lease_version,
        job.lease.worker if job.lease else "",
        NOTHING,
    )
