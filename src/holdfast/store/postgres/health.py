"""Findings about a PostgreSQL server: how safe it is, and how well it serves the store."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.runtime.clock import SystemClock
from holdfast.store.postgres.errors import GRANT
from holdfast.store.postgres.migrate import known
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Finding, Level, clock_finding


async def findings(state: StoreState) -> list[Finding]:
    """Examine the server; see ``Store.findings``."""
    (row,) = await state.run("health", {})
    local_time, is_notified = SystemClock().now(), await state.wake.is_notified()
    version, fsync, commit, pages, standbys, in_recovery, replicas, schema, *rest = row
    server_time, size, unset, is_restored, is_read_only, denied, may_write = rest
    return [
        _durability(fsync, commit, pages),
        _replicas(standbys, replicas, in_recovery=in_recovery),
        _schema(schema),
        _wake(state.wake.error, is_notified=is_notified),
        _session(unset),
        _rights(denied, is_reader=is_read_only or not may_write),
        _restored(state.restore_error, is_restored=is_restored),
        clock_finding(server_time, local_time),
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
            "This server is a standby: it accepts no jobs.",
            "Point the URL at the primary, or add target_session_attrs=read-write.",
        )
    if replicas and not standbys:
        return Finding(
            "replicas",
            Level.WARN,
            f"Commits do not wait for the {replicas} standby: a failover can lose the newest jobs.",
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


def _session(unset: Sequence[str]) -> Finding:
    if not unset:
        return Finding("session", Level.OK, "Sessions have the settings that the store needs.")
    return Finding(
        "session",
        Level.WARN,
        f"Sessions lack the store's setting of {', '.join(unset)}: claims can be many times"
        " slower, and statements have no timeout.",
        "Behind a pooler set each for the role (ALTER ROLE ... SET): plan_cache_mode ="
        " force_generic_plan, enable_seqscan = off, enable_bitmapscan = off, jit = off,"
        " statement_timeout = '30s'.",
    )


def _rights(denied: Sequence[str], *, is_reader: bool) -> Finding:
    if is_reader:
        return Finding(
            "rights",
            Level.WARN,
            "This role only reads: no worker could run with it.",
            f"For a worker, {GRANT}.",
        )
    if denied:
        return Finding(
            "rights",
            Level.ERROR,
            f"This role lacks rights on {', '.join(denied)}: a worker with it fails.",
            f"As the owner, {GRANT}.",
        )
    return Finding("rights", Level.OK, "This role has the rights that a worker needs.")


def _restored(error: str, *, is_restored: bool) -> Finding:
    if not is_restored:
        return Finding("restored", Level.OK, "Every job and event was written on this server.")
    return Finding(
        "restored",
        Level.ERROR,
        "Jobs were restored from another server and are not adopted yet: no worker claims them."
        + (f" The last attempt failed: {error}" if error else ""),
        "Every open store tries to adopt them twice a minute. Let its role write, and end"
        " transactions that have been open for long.",
    )


def _wake(error: str, *, is_notified: bool) -> Finding:
    if is_notified:
        return Finding("wake", Level.OK, "New work is announced by NOTIFY.")
    polled = "new work is found by polling."
    if error:
        return Finding(
            "wake",
            Level.WARN,
            f"Listening for NOTIFY fails: {error}; {polled}",
            "Point listen_url, or the URL itself if there is none, at the server.",
        )
    return Finding(
        "wake",
        Level.WARN,
        f"This process does not listen for NOTIFY: {polled}",
        "Behind PgBouncer, point listen_url= at the server itself.",
    )
