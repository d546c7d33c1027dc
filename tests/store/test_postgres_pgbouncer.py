"""The store behind PgBouncer in transaction mode, which hands every statement to any session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import lifecycle
from holdfast.job import State
from holdfast.store import Change, Claim, Search
from holdfast.store.postgres import PostgresStore
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
SCHEMA = "bounced"
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer here; no wheel has it"),
]


@pytest.fixture(scope="module")
def pgbouncer(postgres_server: Postgres) -> Iterator[str]:
    """A pooler with fewer sessions than clients."""
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
            "unix_socket_dir =\n"
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
            process.terminate()
            process.wait(10)


def _wait_for(port: int) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError("pgbouncer does not answer")


async def test_jobs_live_their_lives_behind_pgbouncer(
    pgbouncer: str, postgres_server: Postgres
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    url = f"{pgbouncer}?schema={SCHEMA}&pgbouncer=true&listen_url={postgres_server.dsn}"
    async with PostgresStore.from_url(url) as store, PostgresStore.from_url(url) as other:
        assert await other._wake.hears()
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
