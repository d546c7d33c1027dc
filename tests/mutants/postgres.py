"""Bugs in the PostgreSQL store's statements."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VERBS = ("postgres verbs",)
RACING = ("postgres race",)
FROZEN = ("postgres frozen",)


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
        "the reaper overruns a heartbeat",
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
        "tell_children",
        "due = w.due OR heard.fatal OR w.eager",
        "due = w.due OR w.eager",
        "a failed dependency is not told while others are open",
        "end",
    ),
    _sql(
        "hold",
        "mine.until <= coalesce",
        "mine.until < coalesce",
        "a hold lasts a moment too long",
        "held",
    ),
    _sql(
        "holds",
        "starts_with(name, %(prefix)s)",
        "name LIKE %(prefix)s || '%%'",
        "an underscore in a prefix stands for anything",
        "hold",
    ),
    _sql(
        "promote",
        "FOR NO KEY UPDATE SKIP LOCKED",
        "",
        "a due job is promoted by everybody who looks",
        "promoted_once",
        layers=RACING,
    ),
    _sql(
        "claim",
        "SKIP LOCKED",
        "",
        "a claimer that froze holds the others up",
        layers=FROZEN,
    ),
    Mutant(
        "store/postgres/rows.py",
        "goes_on = from_state is None and event != Event.SUBMIT",
        "goes_on = False",
        "a birth that went on at once is told as one step",
        VERBS,
        "history",
    ),
    Mutant(
        "store/postgres/reading.py",
        "if each[0] > start]",
        "]",
        "a page that ended within a birth begins with it again",
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
)
