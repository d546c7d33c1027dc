"""Concurrency and rate limits of the memory store."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model.job import Job, State
from holdfast.model.pace import StartPace
from holdfast.store.memory.tables import Tables
from holdfast.store.values import LimitRule, LimitState

MICROSECOND = timedelta(microseconds=1)


class MemoryLimits:
    """The limits at the time of one claim."""

    def __init__(self, tables: Tables, now: datetime) -> None:
        self._tables = tables
        self._now = now

    def admits(self, job: Job) -> bool:
        """Whether every limit has room for this job; if so, it counts against each."""
        scopes = self._scopes(job)
        if not all(self._has_room(scope, rule) for scope, rule in scopes):
            return False
        for scope, rule in scopes:
            if pace := rule.pace:
                started, ahead = pace.recorded(self._debt(scope, pace) + pace.per)
                self._tables.windows[scope] = (started, self._now + ahead * MICROSECOND)
        return True

    def states(self) -> list[LimitState]:
        """Return every limit with its use."""
        found: list[LimitState] = []
        for scope, rule in sorted(self._tables.rules.items()):
            found.append(self._state(scope, rule))
            if scope.startswith("key:"):
                found.extend(self._state(each, rule) for each in self._keys(scope, rule))
        return found

    def _scopes(self, job: Job) -> list[tuple[str, LimitRule]]:
        rules = self._tables.rules
        names = [(s, s) for s in (f"queue:{job.queue}", f"task:{job.type}")]
        if job.limit_key:
            names.append((f"key:{job.type}:{job.limit_key}", f"key:{job.type}"))
        return [(scope, rules[name]) for scope, name in names if name in rules]

    def _has_room(self, scope: str, rule: LimitRule) -> bool:
        if rule.concurrency is not None and self._running(scope) >= rule.concurrency:
            return False
        pace = rule.pace
        return pace is None or pace.room(self._debt(scope, pace)) > 0

    def _debt(self, scope: str, pace: StartPace) -> int:
        started, until = self._tables.windows.get(scope, (0, self._now))
        return pace.debt(started, (until - self._now) // MICROSECOND)

    def _running(self, scope: str) -> int:
        kind, _, rest = scope.partition(":")
        running = (j for j in self._tables.jobs.values() if j.state is State.RUNNING)
        match kind:
            case "queue":
                return sum(job.queue == rest for job in running)
            case "task":
                return sum(job.type == rest for job in running)
            case _:
                return sum(f"{job.type}:{job.limit_key}" == rest for job in running)

    def _keys(self, rule_scope: str, rule: LimitRule) -> list[str]:
        type_ = rule_scope.partition(":")[2]
        busy = {
            f"{rule_scope}:{job.limit_key}"
            for job in self._tables.jobs.values()
            if job.type == type_ and job.limit_key and job.state is State.RUNNING
        }
        pace = rule.pace
        in_debt = {
            scope
            for scope in self._tables.windows
            if scope.startswith(f"{rule_scope}:") and pace and self._debt(scope, pace)
        }
        return sorted(busy | in_debt)

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        started, until = 0, None
        if pace := rule.pace:
            debt = self._debt(scope, pace)
            started, wait = pace.used(debt), pace.wait(debt)
            until = self._now + wait * MICROSECOND if wait else None
        return LimitState(
            scope=scope, rule=rule, running=self._running(scope), started=started, until=until
        )
