"""A store with every kind of key, ways to damage each, and everything that must go on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.http.workers import ClaimedJob
from holdfast.model.job import State
from holdfast.model.policy import Retention
from holdfast.model.workers import WorkerInfo
from holdfast.operations.doctor import examine
from holdfast.operations.quarantine import without_damaged
from holdfast.operations.workers import announce
from holdfast.store import Claim, FailureSearch, LimitRule, RecordWrite, Search
from tests.wire.side import Side

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from holdfast import Holdfast

GARBAGE = (
    b"",
    b"x",
    b"-1",
    b"1e400",
    b"nan",
    b"-inf",
    b"9" * 400,
    b"\xff\xfe",
    b"{",
    b"[]",
    b"|||",
)
SCORES = (float("-inf"), float("inf"), -1e300, 1e300, 0.5)
OTHERS = ("string", "list", "set", "zset", "hash", "stream")


async def populate(app: Holdfast) -> None:
    """Make jobs in every state, and everything else that a store keeps."""
    store, side = app.store, Side(app.store)
    await app.submit("t", 1, queue="q", tags={"a": "b"}, correlation_id="c", idempotency_key="k")
    await app.submit("t", 2, queue="q", priority="HIGH")
    await app.submit("t", 3, queue="q", delay=3600)
    await app.submit("t", 4, queue="q", hold=True)
    for outcome in ("complete", "fail", "retry", "run", "stop"):
        await app.submit("s", outcome, queue=f"q.{outcome}", limit_key="l", tags={"a": "b"})
    parent = await app.submit("t", 5, queue="q.run", delay=3600)
    await app.submit("t", 6, queue="q", depends_on=[parent.job_id])
    await store.limit("queue:q", LimitRule(concurrency=5))
    await store.limit(
        "key:s", LimitRule(concurrency=5, rate=10, per=timedelta(seconds=60), burst=10)
    )
    for outcome in ("complete", "fail", "retry", "run", "stop"):
        (job,) = await side.claim(queue=f"q.{outcome}")
        if outcome == "complete":
            await side.complete(job)
        elif outcome in ("fail", "retry"):
            await side.fail(job, category="PERMANENT" if outcome == "fail" else "TEMPORARY")
        elif outcome == "stop":
            await app.cancel(job.id)
    await store.configure("q", {"paused": False})
    await app.pause("q.stop")
    await app.set_ageing("q", timedelta(minutes=5))
    await store.keep([RecordWrite(kind="kind", key="a", data=b"1")])
    await announce(store, _worker(), timedelta(minutes=1))
    await app.delete((await app.submit("t", 7, queue="q.gone", idempotency_key="g")).job_id)


def _worker() -> WorkerInfo:
    return WorkerInfo(
        id="w",
        host="h",
        pid=1,
        queues=("q",),
        types=("t",),
        slots=1,
        running=0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


Way = tuple[str, list[tuple[Any, ...]]]


async def damages(raw: Redis, key: bytes) -> list[Way]:
    """Return ways to damage a key: a name and the commands."""
    kind = (await raw.type(key)).decode()
    others = [(f"is a {o}", [("DEL", key), _make(o, key)]) for o in OTHERS if o != kind]
    if kind == "hash":
        return others + _hash_damages(key, await raw.hkeys(key))
    if kind == "zset":
        return others + _zset_damages(key, await raw.zrange(key, 0, -1))
    return others + [way for value in GARBAGE for way in _values(kind, key, value)]


def _hash_damages(key: bytes, fields: list[bytes]) -> list[Way]:
    changed: list[Way] = [
        (f"{field!r:.60} = {value!r:.20}", [("HSET", key, field, value)])
        for field in fields
        for value in GARBAGE
    ]
    removed: list[Way] = [(f"no {field!r:.60}", [("HDEL", key, field)]) for field in fields]
    added: list[Way] = [(f"new field {v!r:.20}", [("HSET", key, v, v)]) for v in GARBAGE]
    return changed + removed + added


def _zset_damages(key: bytes, members: list[bytes]) -> list[Way]:
    scores: list[Way] = [
        (f"score of {member!r:.60} {score}", [("ZADD", key, score, member)])
        for member in members
        for score in SCORES
    ]
    return scores + [(f"new member {v!r:.20}", [("ZADD", key, 0, v)]) for v in GARBAGE]


def _values(kind: str, key: bytes, value: bytes) -> list[Way]:
    event = ("XADD", key, "*", "event", value, "jobId", value, "prev", value)
    commands: dict[str, list[tuple[Any, ...]]] = {
        "list": [("LPUSH", key, value), ("RPUSH", key, value)],
        "set": [("SADD", key, value)],
        "string": [("SET", key, value)],
        "stream": [("XADD", key, "*", value, value), event],
    }
    return [(f"{value!r:.20}", commands[kind])]


def kind_of(key: bytes) -> str:
    """The kind of a key: its name without ids, and without the queue where all are alike."""
    name = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{6,}", "ID", key.decode())
    _, queue, rest = name.split(":", 2)
    return rest if queue != "hf" else f"hf:{rest}"


def _make(kind: str, key: bytes) -> tuple[Any, ...]:
    return {
        "string": ("SET", key, "x"),
        "list": ("LPUSH", key, "x"),
        "set": ("SADD", key, "x"),
        "zset": ("ZADD", key, 1, "x"),
        "hash": ("HSET", key, "x", "x"),
        "stream": ("XADD", key, "*", "x", "x"),
    }[kind]


async def faults(app: Holdfast) -> list[str]:
    """Do everything a store is for, in another queue; return what failed."""
    store, side, found = app.store, Side(app.store), []
    calls = {
        "promote": lambda: store.promote(100),
        "overdue": lambda: store.overdue(100),
        "dependents": lambda: store.dependents(100),
        "prune": lambda: store.prune(Retention(), 100),
        "claim all": lambda: _claim_all(store),
        "work": lambda: _work(app, side),
        "find": lambda: store.find(Search()),
        "find tags": lambda: store.find(Search(tags={"a": "b"})),
        "find states": lambda: _states(store),
        "find correlation": lambda: store.find(Search(correlation_id="c")),
        "failures": lambda: store.failures(FailureSearch()),
        "stats": lambda: store.stats(timedelta(hours=1)),
        "queues": store.queues,
        "limits": store.limits,
        "workers": app.workers,
        "events": lambda: store.events("0", 100, timedelta(0)),
        "records": lambda: store.browse("kind"),
        "kinds": store.kinds,
        "keys": lambda: store.deleted_keys(None, 100),
        "doctor": lambda: examine(store),
    }
    for name, call in calls.items():
        try:
            await call()
        except Exception as error:  # noqa: BLE001  # the test names what it must not be
            found.append(f"{name}: {type(error).__name__} {error!s:.150}")
    return found


async def _states(store: Any) -> None:
    for state in State:
        await store.find(Search(states=(state,)))


async def _claim_all(store: Any) -> None:
    queues = tuple(each.name for each in await store.queues())
    want = Claim(queues=queues or ("q",), limit=50, worker="w", token="http-" + "0" * 32)
    jobs = await without_damaged(store, await store.claim(want))
    for job in jobs:
        ClaimedJob.of(job)


async def _work(app: Holdfast, side: Side) -> None:
    job = await app.submit("t", 1, queue="good", tags={"a": "b"})
    (claimed,) = await side.claim(queue="good")
    assert job.job_id == claimed.id
    await side.complete(claimed)
    assert "COMPLETED" == (await app.get(job.job_id)).state
