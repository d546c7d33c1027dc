"""Snapshots of a store through every verb that reads, and their differences."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.job import State
from holdfast.store import Claim, FailureSearch, Order, Search
from tests.conformance.hand import MANY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.model.job import Job
    from holdfast.store import JobEvent, Store

WINDOWS = (timedelta(0), timedelta(minutes=1), timedelta(days=1))
NO_WAIT = timedelta(0)
PAGE = 40


async def snapshot(store: Store, labels: Mapping[str, str]) -> dict[str, object]:
    """Read everything about the labelled jobs and the store; changes nothing."""
    ids = list(labels)
    names = list(labels.values())
    jobs = await store.get(ids)
    noted = [job.id for job in jobs if job and (job.state is State.RUNNING or job.progress)]
    waited = [job.id for job in jobs if job and job.depends_on]
    return {
        "get": dict(zip(names, jobs, strict=True)),
        "history": dict(zip(names, await store.history(ids), strict=True)),
        "logs": {labels[id_]: (await store.logs([id_]))[0] for id_ in noted},
        "cancels": dict(zip(names, await store.cancels(ids), strict=True)),
        "ended": sorted(labels[id_] for id_ in await store.ended(ids)),
        "parents": {labels[id_]: await store.parents(id_) for id_ in waited},
        "find": {order.value: await _walk(store, order, labels) for order in Order},
        "failures": await _failures(store, labels),
        "stats": {str(window): await store.stats(window) for window in WINDOWS},
        "queues": {info.name: info for info in await store.queues()},
        "limits": {state.scope: state for state in await store.limits()},
        "events": await _events(store, labels),
        # Jobs that ran out at the same instant may come in any order.
        "overdue": sorted(labels.get(job.id, job.id) for job in await store.overdue(MANY)),
        "dependents": {
            labels.get(each.job.id, each.job.id): each for each in await store.dependents(MANY)
        },
        "locks": await store.locks(""),
        "next due": (await store.promote(0)).next_due,
    }


async def service(store: Store, queues: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """Claim all ready jobs; return labels in order of service."""
    want = Claim(queues=tuple(queues), limit=MANY, worker="last", token="last")
    return [labels.get(job.id, job.id) for job in await store.claim(want)]


async def _walk(store: Store, order: Order, labels: Mapping[str, str]) -> list[str]:
    page = await store.find(Search(order=order, limit=PAGE))
    found = [f"total {page.total} {page.total_exact}"]
    found += _labelled(page.jobs, labels)
    while page.next_cursor is not None:
        page = await store.find(Search(order=order, limit=PAGE, cursor=page.next_cursor))
        found += _labelled(page.jobs, labels)
    return found


async def _failures(store: Store, labels: Mapping[str, str]) -> dict[str, object]:
    page = await store.failures(FailureSearch(states=tuple(State), limit=MANY))
    return {
        "jobs": _labelled(page.jobs, labels),
        "total": page.total,
        "by_category": dict(page.by_category),
        "by_code": dict(page.by_code),
        "by_type": dict(page.by_type),
    }


async def _events(store: Store, labels: Mapping[str, str]) -> list[object]:
    page = await store.events(None, 100 * MANY, NO_WAIT)
    return [_without_cursor(event, labels) for event in page.events]


def _without_cursor(event: JobEvent, labels: Mapping[str, str]) -> tuple[object, ...]:
    what = event.transition or event.progress
    return (labels.get(event.job_id, event.job_id), event.type, event.queue, event.at, what)


def _labelled(jobs: Sequence[Job], labels: Mapping[str, str]) -> list[str]:
    return [labels.get(job.id, job.id) for job in jobs]


def differences(expected: object, actual: object, path: str = "") -> list[str]:
    """Return every path at which two answers differ, from the outside in."""
    if expected == actual:
        return []
    if type(expected) is type(actual):
        if isinstance(expected, msgspec.Struct) and isinstance(actual, msgspec.Struct):
            left, right = msgspec.structs.asdict(expected), msgspec.structs.asdict(actual)
            return differences(left, right, path)
        if isinstance(expected, dict) and isinstance(actual, dict):
            keys = dict.fromkeys([*expected, *actual])
            return [
                line
                for key in keys
                for line in differences(
                    expected.get(key, "nothing"), actual.get(key, "nothing"), f"{path} > {key}"
                )
            ]
        if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
            return _of_sequences(expected, actual, path)
    return [f"{path}: expected {expected!r}, got {actual!r}"]


def _of_sequences(expected: Sequence[object], actual: Sequence[object], path: str) -> list[str]:
    if len(expected) != len(actual):
        return [f"{path}: expected {list(expected)!r}, got {list(actual)!r}"]
    pairs = enumerate(zip(expected, actual, strict=True))
    return [line for n, (left, right) in pairs for line in differences(left, right, f"{path}[{n}]")]
