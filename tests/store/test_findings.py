"""What stores report about weak settings; ``test_verbs_store`` covers sound ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.runtime.clock import SystemClock
from holdfast.store import Finding, Level, MemoryStore, open_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.location import Location
from holdfast.store.values import clock_finding
from tests.servers import Postgres, Valkey


async def found(url: str) -> dict[str, Finding]:
    async with open_store(url) as store:  # type: ignore[attr-defined]  # every store is one
        return {each.name: each for each in await store.findings()}


@pytest.mark.req("S-13", stores=["memory"])
async def test_memory_warns_that_jobs_are_lost_with_the_process() -> None:
    (finding,) = await MemoryStore().findings()

    assert ("durability", Level.WARN) == (finding.name, finding.level)


@pytest.mark.req("S-13", stores=["sqlite"])
async def test_file_without_power_loss_protection_is_a_warning(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    assert Level.OK is (await found(url))["durability"].level
    weak = (await found(f"{url}?durability=process"))["durability"]

    assert Level.WARN is weak.level
    assert "durability=process" in weak.advice


@pytest.mark.req("S-13", stores=["sqlite"])
async def test_file_on_a_network_filesystem_is_an_error(tmp_path: Path) -> None:
    location = Location(path=tmp_path / "jobs.db", any_filesystem=True)
    async with SQLiteStore(location, filesystem_of=lambda _: "nfs4") as store:
        by_name = {each.name: each for each in await store.findings()}

    assert Level.ERROR is by_name["filesystem"].level
    assert "nfs4" in by_name["filesystem"].text


@pytest.mark.postgres
@pytest.mark.req("S-13", stores=["postgres"])
async def test_postgres_that_may_lose_jobs_is_an_error() -> None:
    with Postgres(["fsync=off"]) as server:
        by_name = await found(f"{server.dsn}?durability=server&pgbouncer=true")

    assert Level.ERROR is by_name["durability"].level
    assert "Turn fsync on" in by_name["durability"].advice
    assert Level.WARN is by_name["wake"].level
    assert Level.OK is by_name["schema"].level


@pytest.mark.postgres
async def test_postgres_reports_which_settings_a_pooler_keeps_from_its_sessions(
    postgres_server: Postgres,
) -> None:
    url = f"{postgres_server.dsn}?schema=found"
    given = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"
    given += " -c statement_timeout=9s"

    sound = (await found(url))["session"]
    bare = (await found(f"{url}&pgbouncer=true"))["session"]
    nearly = (await found(f"{url}&pgbouncer=true&options={quote(given)}"))["session"]

    assert (Level.OK, Level.WARN, Level.WARN) == (sound.level, bare.level, nearly.level)
    assert "statement_timeout" in bare.text
    assert "of enable_bitmapscan:" in nearly.text
    assert "ALTER ROLE" in bare.advice


@pytest.mark.redis
@pytest.mark.req("S-13", stores=["redis"])
@pytest.mark.parametrize(
    ("options", "level", "word"),
    [
        (["--appendonly", "no"], Level.WARN, "last snapshot"),
        (["--appendfsync", "no"], Level.WARN, "power failure"),
        (["--appendfsync", "everysec"], Level.OK, "about a second"),
        (["--appendfsync", "always"], Level.OK, "on disk"),
    ],
)
async def test_redis_reports_what_a_crash_would_lose(
    options: list[str], level: Level, word: str
) -> None:
    with Valkey(options) as server:
        by_name = await found(server.url)

    assert level is by_name["durability"].level
    assert word in by_name["durability"].text
    assert "only copy" in by_name["replicas"].text


@pytest.mark.redis
@pytest.mark.req("S-13", stores=["redis"])
async def test_redis_that_evicts_or_is_nearly_full_is_reported() -> None:
    with Valkey(["--maxmemory", "1mb", "--maxmemory-policy", "allkeys-lru"]) as server:
        by_name = await found(f"{server.url}?accept=eviction")

    assert Level.ERROR is by_name["eviction"].level
    assert Level.WARN is by_name["memory"].level


@pytest.mark.parametrize(("seconds", "word"), [(90, "90.0 s ahead of"), (-5, "5.0 s behind")])
def test_clock_skew_is_reported_with_its_direction(seconds: int, word: str) -> None:
    here = SystemClock().now()

    finding = clock_finding(here + timedelta(seconds=seconds), here)

    assert Level.WARN is finding.level
    assert word in finding.text
    assert Level.OK is clock_finding(here, here).level
