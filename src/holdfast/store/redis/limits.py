"""Limits that hold across all workers: setting them, and what is used of each."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.job import State
from holdfast.store._shapes import LimitRule, LimitState
from holdfast.store.redis import fields, reads

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore


async def limit(store: RedisStore, scope: str, rule: LimitRule | None) -> None:
    """Set or lift a limit."""
    key = store.keys.shared("limits")
    if rule is None:
        await store.client.command("HDEL", key, scope)
        return
    terms: dict[str, int] = {"per": rule.per // fields.MICROSECOND}
    if rule.concurrency is not None:
        terms["concurrency"] = rule.concurrency
    if rule.rate is not None:
        terms["rate"] = rule.rate
    await store.client.command("HSET", key, scope, msgspec.msgpack.encode(terms))


async def limits(store: RedisStore) -> list[LimitState]:
    """Return every limit with what is used of it."""
    rules = {
        scope.decode(): _rule(packed)
        for scope, packed in (await reads.pairs(store, "limits")).items()
    }
    if not rules:
        return []
    usage = Usage(store, rules)
    await usage.read()
    return usage.states()


def _rule(packed: bytes) -> LimitRule:
    terms = msgspec.msgpack.decode(packed, type=dict[str, int])
    return LimitRule(
        concurrency=terms.get("concurrency"),
        rate=terms.get("rate"),
        per=timedelta(microseconds=terms["per"]),
    )


class Usage:
    """How much of each limit is used now."""

    def __init__(self, store: RedisStore, rules: dict[str, LimitRule]) -> None:
        self._store = store
        self._rules = rules
        self._windows: dict[str, tuple[int, int]] = {}
        self._keyed: dict[str, int] = {}
        self._running: dict[str, int] = {}

    async def read(self) -> None:
        """Read the counters."""
        now = fields.micros(self._store.now())
        for name, value in (await reads.pairs(self._store, "windows")).items():
            started, ends = map(int, value.split(b":"))
            if ends > now:
                self._windows[name.decode()] = (started, ends)
        for key, count in (await reads.pairs(self._store, "running")).items():
            self._keyed[f"key:{key.decode()}"] = int(count)
        for tally in await reads.tallies(self._store):
            if tally.state is State.RUNNING:
                for scope in (f"queue:{tally.queue}", f"task:{tally.type}"):
                    self._running[scope] = self._running.get(scope, 0) + tally.count

    def states(self) -> list[LimitState]:
        """Every limit by scope, keyed ones followed by their keys in use."""
        found: list[LimitState] = []
        for scope, rule in sorted(self._rules.items()):
            found.append(self._state(scope, rule))
            if scope.startswith("key:"):
                used = {s for s, n in self._keyed.items() if n > 0} | set(self._windows)
                mine = sorted(each for each in used if each.startswith(f"{scope}:"))
                found.extend(self._state(each, rule) for each in mine)
        return found

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        started, ends = self._windows.get(scope, (0, 0))
        return LimitState(
            scope=scope,
            rule=rule,
            running=self._keyed.get(scope, 0) + self._running.get(scope, 0),
            started=started,
            until=fields.instant(ends) if ends else None,
        )
