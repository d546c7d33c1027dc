"""Bugs in the reference itself and in the counters that every store shares."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LAYERS = ("memory verbs",)


def _in(file: str, old: str, new: str, why: str) -> Mutant:
    return Mutant(f"store/{file}", old, new, why, LAYERS)


MUTANTS = (
    _in(
        "memory/store.py",
        "if fence is not None and not self._tables.is_held(fence):",
        "if fence is not None and fence.job_id not in self._tables.jobs:",
        "a stale spawner spawns",
    ),
    _in(
        "memory/tables.py",
        "return job.lease.token == fence.token",
        "return True",
        "any token renews and notes",
    ),
    _in(
        "memory/tables.py",
        "job.lease is None or job.state is not State.RUNNING:",
        "job.lease is None:",
        "a lease is renewed after its job stopped running",
    ),
    _in(
        "memory/store.py",
        'if self._tables.settings[queue].get("paused"):',
        'if "paused" in self._tables.settings[queue]:',
        "a resumed queue stays paused",
    ),
    _in(
        "memory/store.py",
        "            tables.ready[stored.id] = (stored.priority, tables.places)",
        "            tables.ready[stored.id] = (0, tables.places)",
        "claim ignores priority",
    ),
    _in(
        "memory/store.py",
        "            tables.places += 1\n            tables.ready",
        "            tables.ready",
        "jobs of one priority come in any order",
    ),
    _in(
        "memory/tables.py",
        "self.edges[child].setdefault(parent, state if state in TERMINAL else None)",
        "self.edges[child].setdefault(parent, None)",
        "a dependency that ended before the submission is missed",
    ),
    _in(
        "memory/store.py",
        "                self._tables.edges[child][after.id] = after.state",
        "                self.edges[child].setdefault(after.id, after.state)",
        "the end of a dependency is not marked",
    ),
    _in(
        "memory/store.py",
        "        for waiting in tables.waiting_fan_in(job.spawned_by):\n"
        "            tables.link(waiting, job.id)\n",
        "",
        "FAN_IN does not wait for what is spawned after it was added",
    ),
    _in(
        "memory/store.py",
        "lease = replace(job.lease, until=self.now() + job.lease_ttl)",
        "lease = replace(job.lease, until=job.lease.until + job.lease_ttl)",
        "a renewal counts from the old end",
    ),
    _in(
        "memory/store.py",
        "            del lines[:-MAX_LOG_LINES]\n",
        "",
        "log lines are kept for ever",
    ),
    _in(
        "memory/store.py",
        "if due_at <= now][:limit]",
        "if due_at < now][:limit]",
        "a job is promoted a moment late",
    ),
    _in(
        "memory/store.py",
        "(job.due_at, self._tables.numbers[job.id], job)",
        "(job.created_at, self._tables.numbers[job.id], job)",
        "promotion goes by submission instead of by due time",
    ),
    _in(
        "memory/queries.py",
        "if (end := ends_at(job)) is not None and end <= now",
        "if (end := ends_at(job)) is not None and end < now",
        "a lease lasts a moment too long",
    ),
    _in(
        "memory/tables.py",
        "and job.finished_at + span <= now",
        "and job.finished_at + span < now",
        "a job is pruned a moment late",
    ),
    _in(
        "memory/tables.py",
        "            and not self.is_needed(job.id)\n",
        "",
        "a dependency is pruned while a live job needs it",
    ),
    _in(
        "memory/queries.py",
        "found.holder != wanted.holder and now < found.until <= latest",
        "found.holder != wanted.holder and now <= found.until <= latest",
        "a lock lasts a moment too long",
    ),
    _in(
        "memory/queries.py",
        "now < found.until <= latest",
        "now < found.until",
        "leadership ends hours later after the clock was set back",
    ),
    _in(
        "memory/store.py",
        "(max(0, job.priority - lifted), place)",
        "(job.priority - lifted, place)",
        "ageing does not end at the top",
    ),
    _in(
        "memory/store.py",
        "in _WAKING or (before and before.state is State.RUNNING and tables.rules):",
        "in _WAKING:",
        "room under a limit wakes no worker",
    ),
    _in(
        "memory/tables.py",
        "return held if expires is None or expires > self._now else None",
        "return held if expires is None or expires >= self._now else None",
        "a key holds a moment longer than its window",
    ),
    _in(
        "memory/tables.py",
        "            self._keys[job.dedupe.scope, job.dedupe.key] = (job.dedupe, job.id)\n",
        "            pass\n",
        "keys do not collide within one call",
    ),
    _in(
        "memory/tables.py",
        "return tuple(dict.fromkeys(self._aliases.get(p, p) for p in job.depends_on))",
        "return job.depends_on",
        "a dependency on a duplicate means a job that was never written",
    ),
    _in(
        "memory/tables.py",
        "    if stored.revision != before.revision:\n        return False\n",
        "",
        "swap without revision",
    ),
    _in(
        "memory/tables.py",
        "stored.lease is None or held != stored.lease.token",
        "stored.lease is None",
        "swap without token",
    ),
    _in(
        "memory/tables.py",
        "return change.until is None or (",
        "return True or (",
        "the reaper overruns a heartbeat",
    ),
    _in(
        "memory/tables.py",
        "        checkpoint=stored.checkpoint,\n",
        "",
        "a settlement overwrites a checkpoint",
    ),
    _in(
        "memory/tables.py",
        "return min(job.lease.until, job.expires_at)",
        "return job.lease.until",
        "the lifetime of a running job has no end",
    ),
    _in(
        "memory/tables.py",
        "failed = any(state is not State.COMPLETED for state in ended)",
        "failed = False",
        "a failed dependency is noticed only when all have ended",
    ),
    _in(
        "memory/limits.py",
        "self._debt(scope, pace) + pace.per",
        "pace.per",
        "starts of a rate before the last one do not count",
    ),
    _in(
        "memory/tables.py",
        "        for scope in [s for s, (_, until) in self.windows.items() if until <= now]:\n"
        "            del self.windows[scope]\n",
        "",
        "records of rates are kept for good",
    ),
    _in(
        "memory/limits.py",
        "self._running(scope) >= rule.concurrency",
        "self._running(scope) > rule.concurrency",
        "one more runs than the limit allows",
    ),
    _in(
        "memory/limits.py",
        "if not all(self._has_room(scope, rule) for scope, rule in scopes):",
        "if not any(self._has_room(scope, rule) for scope, rule in scopes) and scopes:",
        "room in one scope is enough",
    ),
    _in(
        "memory/tables.py",
        "            yield from self.spawned_by(child)\n",
        "",
        "FAN_IN does not wait for nested spawns",
    ),
    _in(
        "memory/tables.py",
        "if job.dedupe is not None and job.dedupe.expires_at is None:",
        "if job.dedupe is not None:",
        "a key ends with its job, and with the one that held it before",
    ),
    _in(
        "memory/queries.py",
        "(place[j.id] > last if ascending else place[j.id] < last)]",
        "(place[j.id] >= last if ascending else place[j.id] <= last)]",
        "the last job of a page is on the next one too",
    ),
    _in(
        "memory/queries.py",
        "gap=is_lost and after is not None",
        "gap=False",
        "a subscriber does not learn that it missed events",
    ),
    _in(
        "memory/queries.py",
        "not oldest <= start <= tables.newest_event",
        "not oldest <= start",
        "a subscriber of a restored store does not learn that it missed events",
    ),
    _in(
        "counters.py",
        "self._tallies[queue, type_, left, before] -= count",
        "self._tallies[queue, type_, priority, before] -= count",
        "a job reopened at another priority is counted twice",
    ),
    _in(
        "counters.py",
        "if after in _COUNTED:",
        "if after in _COUNTED and after is not State.RETRYING:",
        "retries are not measured",
    ),
    _in(
        "counters.py",
        "        self._tallies[job.queue, job.type, job.priority, job.state] -= 1",
        "        pass",
        "deleted jobs are still counted",
    ),
    _in(
        "cursors.py",
        "not match or match[1] != order or",
        "not match or",
        "a cursor of another order is accepted",
    ),
    _in(
        "memory/tables.py",
        "edges[parent] = end_on_retry(job.dependency_kind, state)",
        "edges[parent] = edges[parent] or end_on_retry(job.dependency_kind, state)",
        "a retried job fails again through the former end of its dependency",
    ),
    _in(
        "memory/tables.py",
        "return failed and job.dependency_kind is not DependencyKind.AFTER_ALL",
        "return failed",
        "AFTER_ALL is decided by the first failure",
    ),
)  # fmt: skip
