"""Large payloads, beside a loop by hand that moves the same bytes through the same store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import psycopg
import redis
from msgspec.json import decode, encode

from bench.effort import Effort
from bench.hand import Bare
from bench.shapes.measure import count_of, crew, until
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_most
from holdfast import Holdfast, State

SIZES = {"64 KB": 65_536, "1 MB": 1_048_576}
CALL = 8 * 1_048_576
"""Bytes that one call submits, and that the loop by hand writes or reads at once."""
Payload = dict[str, str]
Loop = Callable[[str, Sequence[Payload], int], None]


async def large(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare submitting and running with the same steps by hand, without a queue."""
    found = []
    for name, size in SIZES.items():
        count = effort.pick(96, 48, 2) * 1_048_576 // size
        given = {"text": os.urandom(size // 2 - 8).hex()}
        some = max(1, CALL // size)
        ratios, rates = [], []
        for _ in range(effort.pick(3, 2, 1)):
            begun = time.perf_counter()
            await asyncio.to_thread(LOOPS[store], places.fresh(store), [given] * count, some)
            by_hand = time.perf_counter() - begun
            ours = await _ours(places, store, [given] * count, some)
            ratios.append(ours / by_hand)
            rates.append((count / ours, count / by_hand))
        ours_, hand = (median(each) for each in zip(*rates, strict=True))
        behind = f"{ours_:,.0f} and {hand:,.0f} jobs/s"
        found.append(at_most(f"{name}, time / by hand", median(ratios), 2.0, behind))
    return found


async def _ours(places: Places, store: str, payloads: Sequence[Payload], some: int) -> float:
    url = places.fresh(store)
    async with (
        Holdfast(url) as app,
        crew(places, app, url, "plain", processes=1, slots=some),
    ):
        begun = time.perf_counter()
        for start in range(0, len(payloads), some):
            await app.submit_batch(
                [{"type": "size", "payload": one} for one in payloads[start : start + some]]
            )
        await until(lambda: _all_done(app, len(payloads)))
        return time.perf_counter() - begun


async def _all_done(app: Holdfast, count: int) -> bool:
    return await count_of(app, State.COMPLETED) >= count


def _in_sqlite(url: str, payloads: Sequence[Payload], some: int) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    folder = path.with_suffix("")
    folder.mkdir()
    bare = Bare(folder)
    for start in range(0, len(payloads), some):
        bare.submit([encode(one) for one in payloads[start : start + some]])
    while taken := bare.claim(some, "token"):
        for _, _, payload, _ in taken:
            decode(payload)
        bare.settle(taken, "token")


def _in_postgres(url: str, payloads: Sequence[Payload], some: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE job (id bigserial PRIMARY KEY, state text, payload bytea)")
        insert = "INSERT INTO job (state, payload) VALUES ('ready', %b)"
        for start in range(0, len(payloads), some):
            with db.transaction():
                db.cursor().executemany(
                    insert, [(encode(one),) for one in payloads[start : start + some]]
                )
        while taken := db.execute(
            "UPDATE job SET state = 'taken' WHERE id IN"
            " (SELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT %s FOR UPDATE)"
            " RETURNING id, payload",
            (some,),
            binary=True,
        ).fetchall():
            for _, payload in taken:
                decode(payload)
            ids = [number for number, _ in taken]
            db.execute("UPDATE job SET state = 'done' WHERE id = ANY (%s)", (ids,))


def _in_redis(url: str, payloads: Sequence[Payload], some: int) -> None:
    server, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(server) as client:
        for start in range(0, len(payloads), some):
            with client.pipeline() as pipeline:
                for number, one in enumerate(payloads[start : start + some], start):
                    pipeline.hset(f"{prefix}:{number}", "payload", encode(one))
                    pipeline.rpush(f"{prefix}:ready", number)
                pipeline.execute()
        while taken := client.lpop(f"{prefix}:ready", some):
            with client.pipeline() as pipeline:
                for number in taken:
                    pipeline.hget(f"{prefix}:{number.decode()}", "payload")
                for payload in pipeline.execute():
                    decode(payload)
                for number in taken:
                    pipeline.hset(f"{prefix}:{number.decode()}", "state", "done")
                pipeline.execute()


LOOPS: dict[str, Loop] = {"sqlite": _in_sqlite, "postgres": _in_postgres, "redis": _in_redis}
