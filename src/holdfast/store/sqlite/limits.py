"""Concurrency and rate limits, and settings of queues."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from holdfast.model.pace import StartPace
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.encode import micros_of_span, moment
from holdfast.store.sqlite.swap import AT_ONCE
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import LimitRule, LimitState

FIRST = (-1, -1)


class SQLiteLimits:
    """The limits at the time of one claim or one read."""

    def __init__(
        self, connection: sqlite3.Connection, rules: dict[str, LimitRule], instant: int
    ) -> None:
        self._execute = connection.execute
        self._rules = rules
        self._now = instant
        self._running: dict[str, int] = {}
        self._paces: dict[str, StartPace | None] = {}
        self._debts: dict[str, int] = {}
        self._raised: set[str] = set()

    @classmethod
    def of(cls, tx: Transaction) -> SQLiteLimits | None:
        """Return the limits for a claim; None when none is set."""
        rules = read_rules(tx.connection)
        if not rules:
            return None
        tx.count()
        return cls(tx.connection, rules, tx.instant)

    def admitted(self, queue: str, types: str | None, room: int) -> Iterator[int]:
        """Yield the ``seq`` of up to ``room`` jobs of a queue; each counts from then on."""
        full: set[str] = set()
        place = FIRST
        while room > 0:
            kinds = (queue, types, msgspec.json.encode(sorted(full)).decode())
            if full and not self._execute(statement("others_ready"), kinds).fetchone()[0]:
                return  # else this would read all jobs that wait behind their limit
            rows = self._execute(statement("ready_limited"), (*kinds, *place))
            for seq, type_, key, rank, moved in rows:
                place = (rank, moved)
                if not self._has_room(f"queue:{queue}"):
                    return
                if not self._has_room(f"task:{type_}"):
                    full.add(type_)
                    break  # query again behind this place, without the whole type
                if self._admits(queue, type_, key or ""):
                    room -= 1
                    yield seq
                    if not room:
                        return
            else:
                return

    def write(self) -> None:
        """Write what the jobs that were admitted count against rates."""
        for scope in self._raised:
            if pace := self._pace(scope):
                started, ahead = pace.recorded(self._debts[scope])
                self._execute(statement("rate_window"), (scope, started, self._now + ahead))

    def states(self) -> list[LimitState]:
        """Return every limit with its use."""
        found: list[LimitState] = []
        for scope, rule in sorted(self._rules.items()):
            found.append(self._state(scope, rule))
            if scope.startswith("key:"):
                found.extend(self._state(each, rule) for each in self._keys(scope))
        return found

    def _admits(self, queue: str, type_: str, key: str) -> bool:
        scopes = [f"queue:{queue}", f"task:{type_}"]
        if key:
            scopes.append(f"key:{type_}:{key}")
        if not all(self._has_room(scope) for scope in scopes):
            return False
        for scope in scopes:
            rule = self._rule(scope)
            if rule is not None:
                self._take(scope)
        return True

    def _rule(self, scope: str) -> LimitRule | None:
        kind, _, rest = scope.partition(":")
        return self._rules.get(f"key:{rest.partition(':')[0]}" if kind == "key" else scope)

    def _has_room(self, scope: str) -> bool:
        rule = self._rule(scope)
        if rule is None:
            return True
        if rule.concurrency is not None and self._count(scope) >= rule.concurrency:
            return False
        pace = self._pace(scope)
        return pace is None or pace.room(self._debt(scope, pace)) > 0

    def _take(self, scope: str) -> None:
        self._running[scope] = self._count(scope) + 1
        if pace := self._pace(scope):
            self._debts[scope] = self._debt(scope, pace) + pace.per
            self._raised.add(scope)

    def _count(self, scope: str) -> int:
        if scope not in self._running:
            kind, _, rest = scope.partition(":")
            type_, _, key = rest.partition(":")
            place = (type_, key) if kind == "key" else (rest,)
            (count,) = self._execute(statement(f"running_{kind}"), place).fetchone()
            self._running[scope] = count
        return self._running[scope]

    def _pace(self, scope: str) -> StartPace | None:
        if scope not in self._paces:
            rule = self._rule(scope)
            self._paces[scope] = None if rule is None else rule.pace
        return self._paces[scope]

    def _debt(self, scope: str, pace: StartPace) -> int:
        if scope not in self._debts:
            row = self._execute(statement("open_window"), (scope, self._now)).fetchone()
            self._debts[scope] = 0 if row is None else pace.debt(row[0], row[1] - self._now)
        return self._debts[scope]

    def _keys(self, rule_scope: str) -> list[str]:
        busy = self._execute(statement("running_keys"), (rule_scope.partition(":")[2],)).fetchall()
        windows = self._execute(statement("open_windows"), (f"{rule_scope}:", self._now)).fetchall()
        in_debt = {
            scope for (scope,) in windows if (pace := self._pace(scope)) and self._debt(scope, pace)
        }
        return sorted({f"{rule_scope}:{key}" for (key,) in busy} | in_debt)

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        started, until = 0, None
        if pace := self._pace(scope):
            debt = self._debt(scope, pace)
            started, wait = pace.used(debt), pace.wait(debt)
            until = moment(self._now + wait) if wait else None
        return LimitState(
            scope=scope, rule=rule, running=self._count(scope), started=started, until=until
        )


def read_rules(connection: sqlite3.Connection) -> dict[str, LimitRule]:
    """Return every limit by its scope."""
    return {
        scope: LimitRule(
            concurrency=concurrency, rate=rate, per=timedelta(microseconds=per), burst=burst
        )
        for scope, concurrency, rate, per, burst in connection.execute(statement("rules"))
    }


def configure(tx: Transaction, queue: str, settings: Mapping[str, object]) -> None:
    """Change settings of a queue; see ``Store.configure``."""
    if settings:
        paused, ageing = tx.execute(statement("queue"), (queue,)).fetchone() or (0, None)
        if "paused" in settings:
            paused = bool(settings["paused"])
        if "ageing" in settings:
            interval = settings["ageing"]
            ageing = micros_of_span(interval) if isinstance(interval, timedelta) else None
            lift_at = None if ageing is None else AT_ONCE
            tx.execute(statement("reset_ageing"), (queue, lift_at))
        tx.execute(statement("configure"), (queue, paused, ageing))
    tx.settings_changed()


def limit(tx: Transaction, scope: str, rule: LimitRule | None) -> None:
    """Set or lift a limit; see ``Store.limit``."""
    if rule is None:
        tx.execute(statement("lift_rule"), (scope,))
    else:
        terms = (rule.concurrency, rule.rate, micros_of_span(rule.per), rule.burst)
        tx.execute(statement("set_rule"), (scope, *terms))
    tx.settings_changed()
