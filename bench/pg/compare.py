"""holdfast, its peers and a loop of plain SQL on one durable PostgreSQL server, in turns."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.effort import Effort
from bench.pg import hand, peers
from bench.pg.drain import Bench, Drained, end
from holdfast import Holdfast
from holdfast.operations.workers import workers
from tests import servers

if TYPE_CHECKING:
    from bench.pg.peers import Peer

SETTINGS = ("full_page_writes=on", "shared_buffers=512MB", "max_wal_size=4GB")
"""fsync and synchronous_commit are on unless turned off."""
RATE = 20
Drains = dict[str, list[Drained]]
Rates = dict[str, list[float]]


async def main(*, effort: Effort, folder: str | None) -> None:
    """Print every figure."""
    count, rounds = effort.pick((50_000, 3), (10_000, 1), (1_000, 1))
    turns = effort.pick(30, 30, 1)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        ours = peers.holdfast()
        others = peers.others(Path(place), install=effort.installs)
        rivals = [peer for peer in others if peer.name == "PgQueuer"] + [ours]
        with servers.Postgres(SETTINGS) as server:
            bench = Bench(server)
            drains: Drains = {}
            rates: Rates = {}
            for _ in range(rounds):
                for peer in (*others, ours):
                    drained(drains, rates, bench, peer, count)
                drained(drains, rates, bench, ours, count, processes=2)
                for peer, each in zip(rivals, bench.submit(rivals, turns), strict=True):
                    rates.setdefault(f"{peer.name} one", []).extend(each)
                with bench.database() as dsn:
                    await hand.measure(dsn, count // 2, rates)
            report(drains, {name: statistics.median(each) for name, each in rates.items()})
            await pickup(bench, ours, seconds=effort.pick(20.0, 5.0, 0.3))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def drained(
    drains: Drains, rates: Rates, bench: Bench, peer: Peer, count: int, processes: int = 1
) -> None:
    """Measure one system once."""
    name = peer.name if processes == 1 else f"{peer.name}, {processes} processes"
    result, filled = bench.drain_undisturbed(peer, min(count, peer.most), processes)
    drains.setdefault(name, []).append(result)
    rates.setdefault(f"{name} bulk", []).append(filled)


def report(drains: Drains, rate: dict[str, float]) -> None:
    """Print the tables and the ratios that matter."""
    print(f"{'no-op jobs completed':28} {'jobs/s':>8} {'of ours':>8} {'worker us':>10}"
          f" {'server us':>10} {'busiest':>8} {'stolen':>7} {'bulk/s':>8}")  # fmt: skip
    middle = {name: median(each) for name, each in drains.items()}
    ours = middle["holdfast"]
    for name, each in middle.items():
        bulk = rate[f"{name} bulk"]
        print(
            f"{name:28} {each.rate:8,.0f} {ours.rate / each.rate:8.2f} {each.worker:10.0f}"
            f" {each.server:10.0f} {each.busiest:8.0%} {each.stolen:7.0%} {bulk:8,.0f}"
        )
    for title, mine, other in (
        ("claim + complete, store / by hand", "store work", "hand work"),
        ("submit in batches, store / by hand", "store submit", "hand submit"),
        ("submit_batch / insert by hand", "holdfast bulk", "hand submit"),
        ("submit one by one / PgQueuer", "holdfast one", "PgQueuer one"),
    ):
        if other in rate:
            shown = f"{rate[mine]:8,.0f} / {rate[other]:8,.0f}"
            print(f"{title:36} {shown} = {rate[mine] / rate[other]:5.0%}")
    print(f"{'worker / loop by hand':36} {ours.rate / rate['hand work']:5.0%}", flush=True)


def median(each: list[Drained]) -> Drained:
    """The run in the middle."""
    return sorted(each, key=lambda drained: drained.rate)[len(each) // 2]


async def pickup(bench: Bench, ours: Peer, seconds: float) -> None:
    """Submit to an idle worker; measure from just before the call to the start of the handler."""
    with bench.database() as dsn, tempfile.TemporaryDirectory() as folder:
        async with Holdfast(dsn) as app:
            worker = ours.start(dsn, Path(folder) / "ticks")
            while not await workers(app.store):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.05)
            requested = {}
            begun = time.monotonic()
            for n in range(int(RATE * seconds)):
                # Spread over the interval, so that it is not in step with any polling.
                due = begun + (n + n * 7919 % 1000 / 1000) / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                before = time.monotonic_ns()
                requested[(await app.submit("when")).job_id] = before
            waits = []
            for job_id, before in requested.items():
                status = await app.wait(job_id, timeout=10)
                assert isinstance(status.output, int)
                waits.append((status.output - before) / 1e6)
            end(worker)
    waits.sort()
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(f"pickup at {RATE}/s, submit to begun: p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)
