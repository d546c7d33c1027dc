"""Bugs in the PostgreSQL store's statements."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VERBS = ("postgres verbs",)
RACING = ("postgres race",)
FROZEN = ("postgres frozen",)
LOCKS = ("postgres locks",)
RESTORED = ("postgres restored",)
TRANSACTIONS = ("postgres transactions",)


def _sql(
    name: str, old: str, new: str, why: str, look: str = "", layers: tuple[str, ...] = VERBS
) -> Mutant:
    return Mutant(f"store/postgres/queries/{name}.sql", old, new, why, layers, look)


MUTANTS = (
    _sql(
        "swap",
        "j.revision = c.was",
        "c.was = c.was",
        "swap without revision",
        "swap",
    ),
    _sql(
        "swap",
        "(c.token IS NULL OR j.lease_token = c.token)",
        "(c.token IS NULL OR true)",
        "swap without token",
        "swap",
    ),
    _sql(
        "swap",
        "(c.until IS NULL OR j.lease_until = c.until)",
        "(c.until IS NULL OR true)",
        "the reaper ignores a renewed lease",
        "swap",
    ),
    _sql(
        "extend",
        "AND j.lease_token = f.token",
        "AND f.token = f.token",
        "extend without token",
        "renew",
    ),
    _sql(
        "extend",
        "(j.state = 'RUNNING') IS TRUE AND j.lease_token = f.token",
        "j.lease_token = f.token",
        "a lease is renewed after its job stopped running",
        "renew",
    ),
    _sql(
        "note",
        "AND j.lease_token = n.token",
        "AND n.token = n.token",
        "note without token",
        "note",
    ),
    _sql(
        "holder",
        "AND j.lease_token = %(token)s",
        "AND %(token)s = %(token)s",
        "a stale spawner spawns",
        "spawn",
    ),
    _sql(
        "promote",
        "r.due_at <= (SELECT now FROM clock)",
        "r.due_at < (SELECT now FROM clock)",
        "a job is promoted a moment late",
        "due",
    ),
    _sql(
        "promote",
        "ORDER BY r.due_at, r.number",
        "ORDER BY r.number",
        "promotion goes by submission instead of by due time",
        "promote",
    ),
    _sql(
        "overdue",
        "least(j.lease_until, j.expires_at) <= (SELECT",
        "least(j.lease_until, j.expires_at) < (SELECT",
        "a lease or lifetime lasts a moment too long",
        "overdue",
    ),
    _sql(
        "prunable",
        "j.finished_at <= rule.before",
        "j.finished_at < rule.before",
        "a job is pruned a moment late",
        "prune",
    ),
    _sql(
        "prunable",
        "c.state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')",
        "c.state IN ('SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING')",
        "a dependency is pruned while a job waits for it",
        "prune",
    ),
    _sql(
        "link",
        "CASE WHEN j.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED')",
        "CASE WHEN j.state IN ('COMPLETED', 'FAILED', 'DEAD_LETTER')",
        "a dependency that was cancelled before the submission is missed",
        "dependenc",
    ),
    _sql(
        "fan_in",
        "c.dependency_kind = 'FAN_IN' AND ",
        "",
        "every dependent waits for what is spawned",
        "spawn",
    ),
    _sql(
        "end_edges",
        "due = w.due OR w.eager OR (ends.fatal AND",
        "due = w.due OR w.eager OR (false AND",
        "a failed dependency has no effect while others are open",
        "end",
    ),
    _sql(
        "lock",
        "mine.until <= coalesce",
        "mine.until < coalesce",
        "a named lock lasts a moment too long",
        "lock",
    ),
    _sql(
        "locks",
        "starts_with(name, %(prefix)s)",
        "name LIKE %(prefix)s || '%%'",
        "an underscore in a prefix stands for anything",
        "lock",
    ),
    _sql(
        "promote",
        "FOR NO KEY UPDATE SKIP LOCKED",
        "",
        "a due job is promoted by every caller",
        "promoted_once",
        layers=RACING,
    ),
    _sql(
        "claim",
        "SKIP LOCKED",
        "",
        "a frozen claimer blocks the others",
        layers=FROZEN,
    ),
    Mutant(
        "store/postgres/rows.py",
        "follows = from_state is None and event != Event.SUBMIT",
        "follows = False",
        "a submission and its first transition are read as one",
        VERBS,
        "history",
    ),
    Mutant(
        "store/postgres/read.py",
        "if each[0] > start]",
        "]",
        "a page that ends inside a submission repeats it",
        VERBS,
        "without_loss_or_repeat",
    ),
    _sql(
        "event_bounds",
        "THEN 2 ELSE 1 END",
        "THEN 1 ELSE 1 END",
        "twice as many events are kept as promised",
        "only_about_so_many",
    ),
    Mutant(
        "store/postgres/rows.py",
        "scheduled_at=moments[row[SCHEDULED_AT]],",
        "scheduled_at=moments[row[CREATED_AT]],",
        "a delayed job of a claim seems ready since its submission",
        VERBS,
        "one_claim",
    ),
    Mutant(
        "store/postgres/rows.py",
        "kind = row[KIND:] if",
        "kind = row[KIND] if",
        "jobs of a claim share their tags",
        VERBS,
        "one_claim",
    ),
    _sql(
        "extend",
        " SKIP LOCKED",
        "",
        "a locked job blocks the renewal of other leases",
        layers=LOCKS,
    ),
    _sql(
        "overdue",
        " SKIP LOCKED",
        "",
        "a locked job blocks the reaping of others",
        layers=LOCKS,
    ),
    *(
        _sql(name, by, "", f"two calls that {name} jobs wait for each other", layers=LOCKS)
        for name, by in (
            ("complete", "    ORDER BY 1  -- the order in which"),
            ("swap", "    ORDER BY aim.number"),
            ("note", "    ORDER BY n.number"),
        )
    ),
    _sql(
        "keys_lock",
        "    WHERE NOT EXISTS (\n        SELECT FROM held",
        "    WHERE true OR NOT EXISTS (\n        SELECT FROM held",
        "a duplicate in an open transaction blocks others",
        layers=LOCKS,
    ),
    _sql(
        "parents_read",
        "j.xid = coalesce(pg_current_xact_id_if_assigned(), '0')",
        "true",
        "a job that is linked too early misses an end",
        layers=LOCKS,
    ),
    _sql(
        "pending_remove",
        "    WHERE NOT EXISTS (SELECT FROM {schema}.body b WHERE b.number = joined.parent)\n",
        "    WHERE false\n",
        "a job waits for ever for a deleted dependency",
        layers=LOCKS,
    ),
    Mutant(
        "store/postgres/links.py",
        "    return bool(has_dependents or deleted or busy), last\n",
        "    return False, last\n",
        "jobs that were linked to ended ones are not released",
        LOCKS,
    ),
    _sql(
        "clock",
        ") >= pg_snapshot_xmax(pg_current_snapshot())",
        ") IS NULL",
        "restored jobs are not noticed",
        layers=RESTORED,
    ),
    _sql(
        "adopt_restored",
        "UPDATE {schema}.job j SET xid = '1'",
        "UPDATE {schema}.job j SET xid = j.xid",
        "restored jobs are not claimed",
        layers=RESTORED,
    ),
    _sql(
        "events",
        "    SELECT t.seq, EXISTS (",
        "    SELECT t.seq, true OR EXISTS (",
        "a cursor of another server is accepted",
        layers=RESTORED,
    ),
    _sql(
        "terminate",
        "pg_has_role(a.usesysid, 'USAGE')",
        "false",
        "rows of a frozen handler stay locked after its lease",
        layers=FROZEN,
    ),
    _sql(
        "complete",
        "(pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8",
        "pg_current_xact_id()",
        "a completion comes before progress that was reported earlier",
        layers=TRANSACTIONS,
    ),
    Mutant(
        "store/postgres/transactions.py",
        "if mark != lease_mark(fence):",
        "if mark is None:",
        "a transaction that the handler restarted completes its job",
        TRANSACTIONS,
    ),
    Mutant(
        "store/postgres/transactions.py",
        "        async with self._slots:\n",
        "        if True:\n",
        "a handler loses its attempt because every connection is in use",
        TRANSACTIONS,
    ),
    Mutant(
        "store/postgres/transactions.py",
        "if own != set(names):",
        "if not names:",
        "statements that a handler prepared remain for the next",
        TRANSACTIONS,
    ),
    Mutant(
        "worker/channel.py",
        "await self._notes.written([run.fence])",
        "pass",
        "progress reported last in a transaction is lost",
        ("completing",),
    ),
    _sql(
        "overdue",
        "          <= (SELECT now FROM clock)\n    FOR NO KEY",
        "          <= 'infinity'\n    FOR NO KEY",
        "a lease that was renewed meanwhile is overdue",
        layers=LOCKS,
    ),
    Mutant(
        "store/postgres/maintain.py",
        "ends = [row[-2] for row in rows if row[0] not in live]",
        "ends = [row[-2] for row in rows if row[0] not in {None, *live}]",
        "a lease that was locked is not read again",
        LOCKS,
    ),
    *(
        _sql(
            name,
            "      AND NOT EXISTS (SELECT FROM {schema}.tie t WHERE t.parent = j.number)\n",
            "",
            f"{name} ignores pending links",
            layers=LOCKS,
        )
        for name in ("delete", "prunable")
    ),
    _sql(
        "delete",
        "    DELETE FROM {schema}.tie t USING deleted WHERE t.child = deleted.number\n",
        "    SELECT FROM deleted\n",
        "pending links of a deleted job stay for ever",
        layers=LOCKS,
    ),
    _sql(
        "pending_add",
        "LEFT JOIN {schema}.body p",
        "JOIN {schema}.body p",
        "a dependency that was deleted meanwhile is lost",
        layers=LOCKS,
    ),
    _sql(
        "parents_try_lock",
        " SKIP LOCKED",
        "",
        "a locked dependency blocks linking others",
        layers=LOCKS,
    ),
    Mutant(
        "store/postgres/links.py",
        "    return states, busy | {root for root, id_ in families if id_ in busy}\n",
        "    return states, busy\n",
        "a job is linked although a spawned one is locked",
        LOCKS,
    ),
    _sql(
        "settle",
        "    set_config('idle_in_transaction_session_timeout', %(timeout)s::text, true),\n",
        "",
        "a worker frozen at the end of a transaction keeps its job for minutes",
        layers=TRANSACTIONS,
    ),
    _sql(
        "ready",
        "  AND r.xid < pg_current_xact_id()\n",
        "",
        "a claim under limits comes before the submission of its job",
        layers=("postgres limits",),
    ),
    Mutant(
        "store/postgres/add.py",
        '        await session.run("lock_timeout", {"timeout": None})\n',
        "        pass\n",
        "a submission waits no longer for its dependencies than for its key",
        LOCKS,
    ),
    Mutant(
        "store/postgres/maintain.py",
        "        found.append(has_dependents)\n",
        "        break\n",
        "jobs that cannot be linked hide those that can",
        LOCKS,
    ),
    _sql(
        "link",
        " AND (NOT j.awaited OR j.state = 'RUNNING')",
        " AND NOT j.awaited",
        "a handler's snapshot may miss a second child of its job",
        layers=TRANSACTIONS,
    ),
    _sql(
        "trim_expired",
        "SELECT ctid FROM {schema}.hold WHERE until <= (SELECT now FROM clock)",
        "SELECT ctid FROM {schema}.hold",
        "named locks that are held are deleted",
        layers=("postgres maintain",),
    ),
    Mutant(
        "store/postgres/pool.py",
        "    await asyncio.shield(pool.putconn(connection))\n",
        "    await pool.putconn(connection)\n",
        "a cancellation loses a connection",
        ("postgres faults",),
        "returns_its_connection",
    ),
    _sql(
        "wait_again",
        "SET open = excluded.open, due = excluded.due",
        "SET open = excluded.open",
        "a retried job is decided by the former end of its dependency",
        "retried",
    ),
    _sql(
        "dependents",
        "(b.dependency_kind IS DISTINCT FROM 'AFTER_ALL' AND EXISTS",
        "(EXISTS",
        "AFTER_ALL is decided by the first failure",
        "after_all",
    ),
)
