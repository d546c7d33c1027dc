"""What a PostgreSQL server promises, as it is set up now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from psycopg import AsyncConnection

from holdfast.errors import StoreError, UnsafeStoreError
from holdfast.store.postgres.errors import GRANT
from holdfast.store.postgres.migrate import known
from holdfast.store.postgres.rows import Row
from holdfast.store.values import Finding, Level, clock_finding


def refuse_unreadable(connection: AsyncConnection[Row]) -> None:
    """Refuse a database that cannot keep every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        name = connection.info.dbname
        raise StoreError(
            f"database {name!r} cannot keep every text, its encoding is {encoding}: holdfast needs"
            " UTF8 (CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0)"
        )


async def refuse_unsafe(connection: AsyncConnection[Row]) -> None:
    """Refuse a server that could lose what it has acknowledged."""
    cursor = await connection.execute(
        b"SELECT name FROM pg_settings"
        b" WHERE name IN ('fsync', 'synchronous_commit') AND setting = 'off' ORDER BY name"
    )
    if found := [name for (name,) in await cursor.fetchall()]:
        raise UnsafeStoreError(
            f"{' and '.join(found)} is off: a crash of the server could lose accepted jobs."
            " Turn it on, or accept that with ?durability=server"
        )


def findings(row: Row, here: datetime, *, listens: bool, trouble: str) -> list[Finding]:
    """Report on the server from the answer to ``examine.sql``."""
    version, fsync, commit, pages, standbys, in_recovery, replicas, schema, *rest = row
    server_time, size, lacking, is_restored, is_read_only, closed, may_write = rest
    return [
        _durability(fsync, commit, pages),
        _replicas(standbys, replicas, in_recovery=in_recovery),
        _schema(schema),
        _wake(trouble, listens=listens),
        _session(lacking),
        _rights(closed, is_reader=is_read_only or not may_write),
        _restored(is_restored=is_restored),
        clock_finding(server_time, here),
        Finding("size", Level.OK, f"The schema takes {size / 2**20:.1f} MiB."),
        Finding("version", Level.OK, f"PostgreSQL {version}."),
    ]


def _durability(fsync: str, commit: str, pages: str) -> Finding:
    off = [
        name for name, value in (("fsync", fsync), ("synchronous_commit", commit)) if value == "off"
    ]
    if off:
        return Finding(
            "durability",
            Level.ERROR,
            f"{' and '.join(off)} is off: a crash of the server loses accepted jobs.",
            f"Turn {' and '.join(off)} on.",
        )
    if pages == "off":
        return Finding(
            "durability",
            Level.WARN,
            "full_page_writes is off: a crash can leave torn pages on most disks.",
            "Turn full_page_writes on, unless the filesystem writes whole pages.",
        )
    return Finding("durability", Level.OK, f"An accepted job is on disk (commit: {commit}).")


def _replicas(standbys: str, replicas: int, *, in_recovery: bool) -> Finding:
    if in_recovery:
        return Finding(
            "replicas",
            Level.ERROR,
            "This server is a standby: it takes no jobs.",
            "Point the URL at the primary, or add target_session_attrs=read-write.",
        )
    if replicas and not standbys:
        return Finding(
            "replicas",
            Level.WARN,
            f"{replicas} standby follows without being waited for:"
            " a failover can lose the newest jobs.",
            "Set synchronous_standby_names if a failover must lose nothing.",
        )
    waited = "commits wait for them" if standbys else "the server's disk holds the only copy"
    return Finding("replicas", Level.OK, f"{replicas} standbys; {waited}.")


def _schema(version: int) -> Finding:
    newest = max(migration.version for migration in known())
    if version == newest:
        return Finding("schema", Level.OK, f"The schema is version {version}, the newest known.")
    return Finding(
        "schema",
        Level.WARN,
        f"The schema is version {version}, this program was written for {newest}.",
        "Finish the roll-out: run the same version of holdfast everywhere.",
    )


def _session(lacking: Sequence[str]) -> Finding:
    if not lacking:
        return Finding("session", Level.OK, "Sessions have the settings that the store needs.")
    return Finding(
        "session",
        Level.WARN,
        f"Sessions lack what the store needs of {', '.join(lacking)}: claims can be many times"
        " slower, and statements go on for ever.",
        "Behind a pooler give each to the role (ALTER ROLE ... SET): plan_cache_mode ="
        " force_generic_plan, enable_seqscan = off, enable_bitmapscan = off, jit = off,"
        " statement_timeout = '30s'.",
    )


def _rights(closed: Sequence[str], *, is_reader: bool) -> Finding:
    if is_reader:
        return Finding(
            "rights",
            Level.WARN,
            "This role only reads: no worker could run with it.",
            f"For a worker, {GRANT}.",
        )
    if closed:
        return Finding(
            "rights",
            Level.ERROR,
            f"This role lacks rights on {', '.join(closed)}: a worker with it fails.",
            f"As the owner, {GRANT}.",
        )
    return Finding("rights", Level.OK, "This role may do what a worker needs.")


def _restored(*, is_restored: bool) -> Finding:
    if not is_restored:
        return Finding("restored", Level.OK, "Every job and event is of this server.")
    return Finding(
        "restored",
        Level.ERROR,
        "Jobs were restored from another server and are not taken in yet: nobody claims them.",
        "Every open store tries that twice a minute. Let its role write, and end transactions"
        " that are open for long.",
    )


def _wake(trouble: str, *, listens: bool) -> Finding:
    if listens:
        return Finding("wake", Level.OK, "New work is announced by NOTIFY.")
    polled = "new work is found by looking now and then."
    if trouble:
        return Finding(
            "wake",
            Level.WARN,
            f"Listening for NOTIFY fails: {trouble}; {polled}",
            "Let listen_url, or the URL itself where there is none, lead to the server.",
        )
    return Finding(
        "wake",
        Level.WARN,
        f"This process does not listen for NOTIFY: {polled}",
        "Behind PgBouncer, give listen_url= a way to the server itself.",
    )
