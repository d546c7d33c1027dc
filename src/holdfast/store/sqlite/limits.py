"""Concurrency and rate limits, and settings of queues."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

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
        self._windows: dict[str, tuple[int, int | None]] = {}

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
            full_types = msgspec.json.encode(sorted(full)).decode()
            rows = self._execute(statement("ready_limited"), (queue, types, full_types, *place))
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

    def states(self) -> list[LimitState]:
        """Return every limit with its use."""
        found: list[LimitState] = []
        for scope, rule in sorted(self._rules.items()):
            found.append(self._state(scope, rule))
            if scope.startswith("key:"):
                found.extend(self._state(each, rule) for each in self._keys(scope, rule))
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
                self._take(scope, rule)
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
        return rule.rate is None or self._window(scope)[0] < rule.rate

    def _take(self, scope: str, rule: LimitRule) -> None:
        self._running[scope] = self._count(scope) + 1
        if rule.rate is not None:
            started, until = self._window(scope)
            window = (started + 1, until or self._now + micros_of_span(rule.per))
            self._windows[scope] = window
            self._execute(statement("rate_window"), (scope, *window))

    def _count(self, scope: str) -> int:
        if scope not in self._running:
            kind, _, rest = scope.partition(":")
            type_, _, key = rest.partition(":")
            place = (type_, key) if kind == "key" else (rest,)
            (count,) = self._execute(statement(f"running_{kind}"), place).fetchone()
            self._running[scope] = count
        return self._running[scope]

    def _window(self, scope: str) -> tuple[int, int | None]:
        if scope not in self._windows:
            rule = self._rule(scope)
            per = 0 if rule is None else micros_of_span(rule.per)
            row = self._execute(statement("open_window"), (scope, self._now, per)).fetchone()
            self._windows[scope] = row or (0, None)
        return self._windows[scope]

    def _keys(self, rule_scope: str, rule: LimitRule) -> list[str]:
        type_, per = rule_scope.partition(":")[2], micros_of_span(rule.per)
        busy = self._execute(statement("running_keys"), (type_,)).fetchall()
        windows = self._execute(statement("open_windows"), (f"{rule_scope}:", self._now, per))
        return sorted({f"{rule_scope}:{key}" for (key,) in busy} | {s for (s,) in windows})

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        started, until = self._window(scope)
        return LimitState(
            scope=scope,
            rule=rule,
            running=self._count(scope),
            started=started,
            until=None if until is None else moment(until),
        )


def read_rules(connection: sqlite3.Connection) -> dict[str, LimitRule]:
    """Return every limit by its scope."""
    return {
        scope: LimitRule(concurrency=concurrency, rate=rate, per=timedelta(microseconds=per))
        for scope, concurrency, rate, per in connection.execute(statement("rules"))
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
        per = micros_of_span(rule.per)
        tx.execute(statement("set_rule"), (scope, rule.concurrency, rule.rate, per))
    tx.settings_changed()
