"""A store with a week of jobs in it: filled for one run, or kept in a folder for later ones.

To fill a million takes many minutes. ``--keep FOLDER --seconds 80`` fills for so long; the same
command again goes on where the last one stopped, and measures when the week is complete.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psycopg
from redis import Redis

from bench.effort import Effort
from bench.operator.week import Week
from holdfast import Holdfast
from holdfast.runtime.clock import ManualClock
from holdfast.store import open_store
from tests import servers

STORES = ("sqlite", "postgres", "redis")
TUNED = ["full_page_writes=on", "shared_buffers=512MB"]


class Made(msgspec.Struct):
    """What a folder holds: how far the week is, and what the reads ask for."""

    now: datetime
    hours: int = 0
    job_id: str = ""
    workflow: str = ""


@dataclass(frozen=True)
class Filled:
    """A store whose week is complete."""

    app: Holdfast
    job_id: str
    workflow: str


@dataclass(frozen=True)
class Wish:
    """Where the weeks are, and how long to fill them."""

    effort: Effort
    folder: str | None
    keep: str | None = None
    seconds: float = float("inf")

    @property
    def size(self) -> tuple[int, int]:
        """How many jobs, over how many hours."""
        return self.effort.pick((1_000_000, 168), (50_000, 168), (200, 4))


async def filled_stores(only: str, wish: Wish) -> AsyncIterator[tuple[str, Filled]]:
    """Yield each store, or only one, in turn; without those for which the time was too short."""
    for name in [only] if only else STORES:
        async with _filled(name, wish) as week:
            if week is not None:
                yield name, week


@asynccontextmanager
async def _filled(name: str, wish: Wish) -> AsyncIterator[Filled | None]:
    """Yield the filled store; None when the time was too short to complete it."""
    with _folder(name, wish) as here, _served(name, here, kept=wish.keep is not None) as url:
        note = here / "made.json"
        start = ManualClock().now()
        made = msgspec.json.decode(note.read_bytes(), type=Made) if note.exists() else Made(start)
        clock = ManualClock(made.now)
        async with Holdfast(store=open_store(url, clock=clock), clock=clock) as app:
            await _fill(app, clock, made, wish, note)
            if made.workflow:
                yield Filled(app, made.job_id, made.workflow)
            else:
                jobs, hours = wish.size
                print(f"{name}: {made.hours} of {hours} hours with {jobs:,} jobs are filled")
                yield None


async def _fill(app: Holdfast, clock: ManualClock, made: Made, wish: Wish, note: Path) -> None:
    jobs, hours = wish.size
    week, begun = Week(app.store, clock), time.monotonic()
    while made.hours < hours and time.monotonic() - begun < wish.seconds:
        await week.fill(jobs, hour=made.hours, hours=hours)
        made.hours, made.now, made.job_id = made.hours + 1, clock.now(), week.job_ids[0]
        _write(note, made)
    if made.hours == hours and not made.workflow:
        made.workflow = await week.leave_work(app)
        made.now = clock.now()
        await app.store.promote(1000)
        _write(note, made)


def _write(note: Path, made: Made) -> None:
    note.write_bytes(msgspec.json.encode(made))


@contextmanager
def _folder(name: str, wish: Wish) -> Iterator[Path]:
    if wish.keep is not None:
        kept = Path(wish.keep).resolve() / name
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with TemporaryDirectory(dir=wish.folder) as made:
        yield Path(made)


@contextmanager
def _served(name: str, here: Path, *, kept: bool) -> Iterator[str]:
    """Yield the URL of a store; its server runs meanwhile, on files in the folder if it is kept."""
    if name == "sqlite":
        yield f"sqlite:///{here}/jobs.db"
        return
    server = servers.Postgres(TUNED) if name == "postgres" else servers.Valkey()
    if kept:
        _move(server, here / "server")
    try:
        server.start()
        yield _ready(server)
    finally:
        server.stop()


def _move(server: servers.Postgres | servers.Valkey, root: Path) -> None:
    """Give a server that has not started another folder for its files."""
    shutil.rmtree(server.root)
    server.root = root
    root.mkdir(exist_ok=True)
    if isinstance(server, servers.Postgres):
        server.data = root / "data"
        if server.identity:
            shutil.chown(root, server.identity["user"], server.identity["group"])


def _ready(server: servers.Postgres | servers.Valkey) -> str:
    """Wait until a server has read its files; bring PostgreSQL into the state of a while later."""
    if isinstance(server, servers.Postgres):
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("VACUUM ANALYZE")
        return f"{server.dsn}?schema=operator"
    with Redis.from_url(server.url) as client:
        while client.info("persistence")["loading"]:  # type: ignore[index]  # not a coroutine
            time.sleep(0.1)
    return server.url
