"""Draining a full queue with worker processes, measured in jobs and in processor time."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.pg import ticks
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.pg.peers import Peer

LONGEST = 120.0
TURN = 250
"""Jobs that a client submits one by one in its turn."""
TICK = os.sysconf("SC_CLK_TCK")
MAX_STOLEN, MAX_RUNS = 0.05, 4
"""The share of processor time that the host may steal from a run, and how often it is repeated."""


@dataclass(frozen=True)
class Drained:
    """The rate, and the processor time per job in microseconds."""

    rate: float
    worker: float
    server: float
    busiest: float
    """The share of one core that the busiest process of the server used."""
    stolen: float
    """The share of processor time that the host stole."""


class Bench:
    """A server with a database for each measurement."""

    def __init__(self, server: servers.Postgres) -> None:
        self.server = server
        self._admin = psycopg.connect(server.dsn, autocommit=True)
        self._made = 0

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of a new database."""
        self._made += 1
        name = f"bench{self._made}"
        self._admin.execute(f"CREATE DATABASE {name}".encode())
        yield self.server.dsn.removesuffix("/postgres") + f"/{name}"
        self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def drain_undisturbed(self, peer: Peer, count: int, processes: int) -> tuple[Drained, float]:
        """Drain; repeat it if the host was busy, which slows systems that use all processors."""
        runs = [self.drain(peer, count, processes)]
        while runs[-1][0].stolen > MAX_STOLEN and len(runs) < MAX_RUNS:
            runs.append(self.drain(peer, count, processes))
        return min(runs, key=lambda each: each[0].stolen)

    def drain(self, peer: Peer, count: int, processes: int = 1) -> tuple[Drained, float]:
        """Fill a queue and drain it; return the result, and the rate of filling."""
        with self.database() as dsn:
            peer.call(dsn, "setup")
            filled = count / peer.call(dsn, "fill", count)["seconds"]
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
                connection.execute("CHECKPOINT")
                with tempfile.TemporaryDirectory() as folder:
                    paths = [Path(folder) / str(n) for n in range(processes)]
                    workers = [peer.start(dsn, path) for path in paths]
                    try:
                        drained = self._watch(connection, peer, count, paths, workers)
                    finally:
                        for worker in workers:
                            end(worker)
        return drained, filled

    def submit(self, rivals: Sequence[Peer], turns: int) -> list[list[float]]:
        """Submit in short turns, each job awaited; return the rate of each turn.

        Such a call mostly waits for the disk, whose speed varies from second to second: only
        results of the same moment can be compared. The order alternates, because work that a
        client leaves behind after its turn slows down the next one.
        """
        rates: list[list[float]] = [[] for _ in rivals]
        with ExitStack() as stack:
            clients = []
            for peer in rivals:
                dsn = stack.enter_context(self.database())
                peer.call(dsn, "setup")
                clients.append(stack.enter_context(peer.client(dsn, "submit")))
            order = list(zip(clients, rates, strict=True))
            for _ in range(turns):
                for run, rate in order:
                    rate.append(TURN / run(TURN)["seconds"])
                order.reverse()
        return rates

    def _watch(
        self,
        connection: psycopg.Connection[tuple[int]],
        peer: Peer,
        count: int,
        paths: list[Path],
        workers: list[subprocess.Popen[bytes]],
    ) -> Drained:
        until = time.monotonic() + LONGEST
        pids = [worker.pid for worker in workers]
        begun, ran, before = 0, 0, None
        while ran < count:
            begun, ran = ticks.read(paths)
            if begun and before is None:
                before = self._spent(pids), stolen(), ran
            if time.monotonic() > until:
                raise TimeoutError(f"{peer.name} ran {ran} of {count} jobs")
            time.sleep(0.002)
        while connection.execute(peer.unfinished.encode()).fetchall() != [(0,)]:
            if time.monotonic() > until:
                raise TimeoutError(f"{peer.name} did not acknowledge every job")
            time.sleep(0.001)
        seconds = (time.monotonic_ns() - begun) / 1e9
        assert before is not None
        (worker, server), (taken, passed), already = before
        worker_now, server_now = self._spent(pids)
        taken_now, passed_now = stolen()
        left = max(1, count - already)  # few jobs may be over before the first look
        spent = {pid: used - server.get(pid, 0.0) for pid, used in server_now.items()}
        return Drained(
            count / seconds,
            (worker_now - worker) / left * 1e6,
            sum(spent.values()) / left * 1e6,
            max(spent.values()) / seconds,
            (taken_now - taken) / max(1, passed_now - passed),
        )

    def _spent(self, workers: list[int]) -> tuple[float, dict[int, float]]:
        assert self.server.process is not None
        postmaster = self.server.process.pid
        return (
            sum(cpu(pid) for pid in workers),
            {pid: cpu(pid) for pid in (postmaster, *children(postmaster))},
        )


def end(worker: subprocess.Popen[bytes]) -> None:
    """Stop a worker process; kill it after ten seconds."""
    worker.terminate()
    try:
        worker.wait(10)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def cpu(pid: int) -> float:
    """Return the processor time a process used, with that of its children that ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def stolen() -> tuple[int, int]:
    """Return the processor time that the host has stolen so far, and all of it."""
    with Path("/proc/stat").open() as file:
        times = [int(each) for each in file.readline().split()[1:9]]
    return times[7], sum(times)
