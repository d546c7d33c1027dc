"""The store behind PgBouncer in transaction mode, which runs statements on any session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.errors import StoreError
from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.store import Change, Claim, Fence, Search
from holdfast.store.postgres import PostgresStore
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of
from tests.waiting import in_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.job import Job
    from tests.servers import Postgres

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
SCHEMA = "bounced"
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(
        PGBOUNCER is None, reason="pgbouncer is not installed; no wheel contains it"
    ),
]


@pytest.fixture(scope="module")
def pgbouncer(postgres_server: Postgres) -> Iterator[str]:
    """A pooler with fewer sessions than clients."""
    with _pooling(postgres_server) as url:
        yield url


@contextlib.contextmanager
def _pooling(postgres_server: Postgres, more: str = "") -> Iterator[str]:
    info = psycopg.conninfo.conninfo_to_dict(postgres_server.dsn)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "pgbouncer.ini")
        config.write_text(
            f"[databases]\n* = host={info['host']} port={info['port']} user={info['user']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 2\n"
            f"unix_socket_dir =\n{more}\n"
        )
        nobody = {}
        if os.geteuid() == 0:
            nobody = {"user": pwd.getpwnam("nobody").pw_uid, "extra_groups": []}
            Path(folder).chmod(0o755)
        process = subprocess.Popen(
            [str(PGBOUNCER), str(config)], stderr=subprocess.DEVNULL, cwd=folder, **nobody
        )
        try:
            _wait_for(port)
            yield f"postgresql://{info['user']}@127.0.0.1:{port}/{info['dbname']}"
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    in_time(answers)


async def test_jobs_run_from_submission_to_end_behind_pgbouncer(
    pgbouncer: str, postgres_server: Postgres
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    url = f"{pgbouncer}?schema={SCHEMA}&pgbouncer=true&listen_url={postgres_server.dsn}"
    async with PostgresStore.from_url(url) as store, PostgresStore.from_url(url) as other:
        assert await state_of(other).wake.is_notified()
        seen = await other.arrivals(["default"], -1, timedelta(0))
        parent = make("parent", now=store.now(), idempotency_key="k")
        child = make("child", now=store.now(), after=[parent])
        jobs = [make(str(n), now=store.now()) for n in range(40)]

        await store.add([parent, child])
        await asyncio.gather(*(store.add([job]) for job in jobs))

        assert seen != await other.arrivals(["default"], seen, timedelta(seconds=10))
        for n in range(8):
            want = Claim(queues=("default",), limit=10, worker="w", token=f"t{n}")
            taken = await other.claim(want)
            now = other.now()
            await other.swap([Change(j, lifecycle.completed(j, None, now=now)) for j in taken])
        found = await store.find(Search(states=(State.COMPLETED,)))
        assert 41 == found.total == len(found.jobs)
        assert [child.id] == [dependent.job.id for dependent in await store.dependents(10)]


SETTINGS = ("statement_timeout", "plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "jit")


async def test_missing_pgbouncer_parameter_is_an_error_and_leaves_no_settings(
    pgbouncer: str, postgres_server: Postgres
) -> None:
    def shown(dsn: str) -> list[str]:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
            return [connection.execute(f"SHOW {name}").fetchone()[0] for name in SETTINGS]

    with pytest.raises(StoreError, match="add pgbouncer=true to the URL"):
        await PostgresStore.from_url(f"{pgbouncer}?schema={SCHEMA}").start()

    assert shown(postgres_server.dsn) == shown(pgbouncer)


async def test_lost_prepared_statements_behind_a_pooler_are_an_error(
    postgres_server: Postgres,
) -> None:
    async def lose(url: str) -> None:
        async with PostgresStore.from_url(url) as store, PostgresStore.from_url(url) as other:
            while True:
                await asyncio.gather(*(each.get(["x"]) for each in (store, other) * 3))

    with (
        _pooling(postgres_server, "ignore_startup_parameters = options") as url,
        pytest.raises(StoreError, match=r"prepared statement .* add pgbouncer=true to the URL"),
    ):
        await asyncio.wait_for(lose(f"{url}?schema={SCHEMA}"), 30)


async def test_handlers_transaction_behind_pgbouncer_ends_with_its_lease(
    pgbouncer: str, postgres_server: Postgres
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    url = f"{pgbouncer}?schema={SCHEMA}&pgbouncer=true"
    async with PostgresStore.from_url(url) as store:
        done, lost = (make(label, now=store.now()) for label in ("done", "lost"))
        await store.add([done, lost])
        want = Claim(queues=("default",), limit=2, worker="w", token="t")
        done, lost = await store.claim(want)

        async def work(job: Job, *, is_lost: bool) -> None:
            async with store.transaction(
                Fence(job.id, "t"), lambda job: lifecycle.completed(job, None, now=store.now())
            ) as connection:
                await connection.execute("SELECT 1")
                if is_lost:
                    now = store.now()
                    await store.swap([Change(job, lifecycle.lease_lost(job, now=now))])
                    await connection.execute("SELECT pg_sleep(10)")

        await work(done, is_lost=False)
        with pytest.raises(psycopg.OperationalError):
            await work(lost, is_lost=True)

        ended = await store.get([done.id, lost.id])
    assert [State.COMPLETED, State.RETRYING] == [job.state for job in ended if job]
