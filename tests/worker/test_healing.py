"""Workers outlive what a store or its driver raises; running jobs go on and keep their results."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uvloop
from redis.asyncio import Redis

from holdfast import Holdfast, State
from holdfast.errors import SchemaVersionError, StoreError
from holdfast.store import Claim, MemoryStore
from holdfast.store.proxy import StoreProxy
from holdfast.worker import Worker
from tests.proxy import Proxy
from tests.servers import Postgres, Valkey
from tests.waiting import PATIENCE, eventually
from tests.worker.rig import EventLog, ended, until, working

Runner = Callable[[Coroutine[Any, Any, None]], None]
RESETS = 12
BRIEF = 8


class Bench:
    """An app with a job that runs until it is released, and what its worker reports."""

    def __init__(self, url: str) -> None:
        self.log = EventLog()
        self.app = Holdfast(url)
        self.started, self.released = asyncio.Event(), asyncio.Event()
        self.runs = 0

        @self.app.task("slow")
        async def slow() -> str:
            self.runs += 1
            self.started.set()
            await self.released.wait()
            return "kept"

        @self.app.task("quick")
        async def quick() -> None:
            pass


@asynccontextmanager
async def running_job(url: str) -> AsyncIterator[tuple[Bench, str]]:
    """A worker that runs a job; afterwards it must still work, and the job must have run once."""
    bench = Bench(url)
    async with working(bench.app, observer=bench.log, slots=2):
        job = await bench.app.submit("slow")
        async with asyncio.timeout(PATIENCE):
            await bench.started.wait()
        yield bench, job.job_id
        bench.released.set()
        assert State.COMPLETED is await ended(bench.app, job.job_id)
        quick = await bench.app.submit("quick")
        assert State.COMPLETED is await ended(bench.app, quick.job_id)
    assert 1 == bench.runs
    assert [] == bench.log.all("results.lost")


@pytest.mark.redis
@pytest.mark.req("R-2")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_reset_lines_are_an_outage_on_both_loops(valkey_server: Valkey, run: Runner) -> None:
    async def main() -> None:
        prefix = f"r{uuid.uuid4().hex[:10]}"
        async with Proxy(valkey_server.port) as proxy:
            url = f"redis://127.0.0.1:{proxy.port}?prefix={prefix}"
            async with running_job(url) as (bench, _):
                for _ in range(RESETS):
                    proxy.reset()
                    quick = await bench.app.submit("quick")
                    assert State.COMPLETED is await ended(bench.app, quick.job_id)

    run(main())


async def _take_rights(raw: Redis, *, away: bool) -> None:
    rule = "-" if away else "+"
    await raw.execute_command("ACL", "SETUSER", "w", f"{rule}@scripting", f"{rule}bzpopmin")


async def _make_replica(raw: Redis, *, away: bool) -> None:
    await raw.execute_command("REPLICAOF", *(("127.0.0.1", "1") if away else ("NO", "ONE")))


@pytest.mark.redis
@pytest.mark.req("R-2")
@pytest.mark.parametrize("trouble", [_take_rights, _make_replica])
async def test_worker_waits_while_redis_refuses(trouble: Callable[..., Any]) -> None:
    with Valkey() as server:
        async with Redis.from_url(server.url) as raw:
            await raw.execute_command("ACL", "SETUSER", "w", "on", ">pw", "~*", "&*", "+@all")
            url = f"redis://w:pw@127.0.0.1:{server.port}/0"
            async with running_job(url) as (bench, job_id):
                await trouble(raw, away=True)
                await bench.log.wait_for("store.unavailable")
                bench.released.set()
                await trouble(raw, away=False)
                assert State.COMPLETED is await ended(bench.app, job_id)


@pytest.mark.redis
@pytest.mark.req("R-2")
async def test_worker_whose_blocking_call_is_ended_by_the_server_goes_on(
    valkey_server: Valkey,
) -> None:
    url = f"{valkey_server.url}?prefix=u{uuid.uuid4().hex[:10]}"
    async with Redis.from_url(valkey_server.url) as raw, running_job(url):

        async def unblocked() -> bool:
            for client in await raw.client_list():
                if client["cmd"] == "bzpopmin":
                    await raw.execute_command("CLIENT", "UNBLOCK", client["id"], "ERROR")
                    return True
            return False

        for _ in range(10):
            await eventually(unblocked)


@pytest.mark.postgres
@pytest.mark.req("R-2")
async def test_worker_waits_for_a_schema_that_comes_back(postgres_server: Postgres) -> None:
    schema = f"s{uuid.uuid4().hex[:10]}"
    async with running_job(f"{postgres_server.dsn}?schema={schema}") as (bench, job_id):
        with psycopg.connect(postgres_server.dsn, autocommit=True) as admin:
            admin.execute(f"ALTER SCHEMA {schema} RENAME TO {schema}_away")
            await bench.log.wait_for("store.unavailable")
            bench.released.set()
            admin.execute(f"ALTER SCHEMA {schema}_away RENAME TO {schema}")
        assert State.COMPLETED is await ended(bench.app, job_id)


@pytest.mark.req("R-2", stores=["sqlite"])
async def test_worker_waits_for_a_moved_file_that_comes_back(tmp_path: Path) -> None:
    file, away = tmp_path / "jobs.db", tmp_path / "away.db"
    async with running_job(f"sqlite:///{file}") as (bench, job_id):
        file.rename(away)
        reported = await bench.log.wait_for("store.unavailable")
        bench.released.set()
        away.rename(file)
        assert State.COMPLETED is await ended(bench.app, job_id)

    assert "was deleted, moved or replaced" in str(reported[0]["error"])


class RefusingStore(StoreProxy):
    """A store whose claims raise what a test gives."""

    error: Exception | None = None

    async def claim(self, want: Claim) -> list[Any]:
        if self.error is not None:
            raise self.error
        return await super().claim(want)


@pytest.mark.req("R-2")
@pytest.mark.parametrize("error", [StoreError("refused"), RuntimeError("closed"), KeyError("x")])
async def test_nothing_that_a_claim_raises_ends_a_worker(error: Exception) -> None:
    store, log = RefusingStore(MemoryStore()), EventLog()
    app = Holdfast(store=store)
    app.task("work")(lambda: None)
    async with working(app, observer=log):
        store.error = error
        await app.submit("work")
        await log.wait_for("store.unavailable")
        store.error = None
        job = await app.submit("work")
        assert State.COMPLETED is await ended(app, job.job_id)

    assert 1 == len(log.all("store.unavailable"))


@pytest.mark.req("R-2")
async def test_worker_stops_for_a_schema_that_only_a_newer_program_knows() -> None:
    store = RefusingStore(MemoryStore())
    store.error = SchemaVersionError(9, 5)
    app = Holdfast(store=store)
    app.task("work")(lambda: None)

    with pytest.raises(SchemaVersionError):
        await Worker(app).run()


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.req("R-2")
async def test_results_of_an_outage_longer_than_the_lease_are_kept() -> None:
    runs: list[int] = []
    with Valkey() as server:
        app = Holdfast(f"redis://w:pw@127.0.0.1:{server.port}/0")

        @app.task("brief", lease=2)
        async def brief(n: int) -> int:
            runs.append(n)
            await asyncio.sleep(1 + n / 10)  # it ends in the outage
            return n

        async with Redis.from_url(server.url) as raw:
            await raw.execute_command("ACL", "SETUSER", "w", "on", ">pw", "~*", "&*", "+@all")
            async with working(app, slots=10):
                jobs = [await brief.submit(n) for n in range(BRIEF)]
                await until(lambda: len(runs) == BRIEF)
                await _take_rights(raw, away=True)
                await asyncio.sleep(6)  # the lease ends, and the delays between two tries grow
                await _take_rights(raw, away=False)
                for job in jobs:
                    assert State.COMPLETED is await ended(app, job.job_id)
    assert sorted(runs) == list(range(BRIEF))


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.req("R-2")
async def test_jobs_outlast_an_outage_longer_than_the_lease_and_each_reason_is_reported_once(
    postgres_server: Postgres,
) -> None:
    runs, log, schema = list[int](), EventLog(), f"s{uuid.uuid4().hex[:10]}"
    app = Holdfast(f"{postgres_server.dsn}?schema={schema}")

    @app.task("brief", lease=2)
    async def brief(n: int) -> int:
        runs.append(n)
        await asyncio.sleep(1 + n)  # most end in the outage, the last ones after it
        return n

    async with working(app, slots=10, observer=log):
        jobs = [await brief.submit(n) for n in range(BRIEF)]
        await until(lambda: len(runs) == BRIEF)
        with psycopg.connect(postgres_server.dsn, autocommit=True) as admin:
            admin.execute(f"ALTER SCHEMA {schema} RENAME TO {schema}_away")
            await asyncio.sleep(6)  # the lease ends, and the delays between two tries grow
            admin.execute(f"ALTER SCHEMA {schema}_away RENAME TO {schema}")
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id)

    assert list(range(BRIEF)) == sorted(runs)
    assert 1 == len(log.all("heartbeat.missed"))
    assert 1 == len(log.all("store.unavailable"))
    services = [entry["service"] for entry in log.all("maintenance.failed")]
    assert sorted(set(services)) == sorted(services)  # type: ignore[type-var]
