"""Limits that hold across all workers: setting them, and what is used of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.job import State
from holdfast.model.measures import Tally
from holdfast.store.redis import fields, read
from holdfast.store.values import LimitRule, LimitState

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore


async def limit(store: RedisStore, scope: str, rule: LimitRule | None) -> None:
    """Set or lift a limit."""
    if rule is None:
        await store.call("limit", scope, "")
        return
    terms: dict[str, int] = {"per": rule.per // fields.MICROSECOND}
    if rule.concurrency is not None:
        terms["concurrency"] = rule.concurrency
    if rule.rate is not None:
        terms["rate"] = rule.rate
    await store.call("limit", scope, msgspec.msgpack.encode(terms))


async def limits(store: RedisStore) -> list[LimitState]:
    """Return every limit with what is used of it."""
    tally, (rules, windows, running, queues) = await store.call("counts", "limits", "")
    usage = Usage({scope.decode(): _rule(terms) for scope, terms in read.paired(rules).items()})
    usage.read(fields.micros(store.now()), read.paired(windows), read.paired(running))
    usage.share(queues)
    usage.count(read.read_tally(tally))
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

    def __init__(self, rules: dict[str, LimitRule]) -> None:
        self._rules = rules
        self._windows: dict[str, tuple[int, int]] = {}
        self._keyed: dict[str, int] = {}
        self._running: dict[str, int] = {}

    def read(self, now: int, windows: dict[bytes, bytes], running: dict[bytes, bytes]) -> None:
        """Take in the open rate windows and the running jobs by key."""
        for name, value in windows.items():
            started, ends = map(int, value.split(b":"))
            if ends > now:
                self._windows[name.decode()] = (started, ends)
        for key, count in running.items():
            self._keyed[f"key:{key.decode()}"] = int(count)

    def share(self, queues: Sequence[tuple[bytes, int, int, int, bytes, bytes]]) -> None:
        """Take in the limits of whole queues, which BullMQ clients may have set or used."""
        for name, concurrency, rate, duration, started, ends in queues:
            scope = f"queue:{name.decode()}"
            rule = LimitRule(
                concurrency=concurrency or None,
                rate=rate or None,
                per=timedelta(milliseconds=duration or 1000),
            )
            self._rules.setdefault(scope, rule)
            if rate and int(started):
                self._windows[scope] = (min(int(started), rate), int(ends))

    def count(self, tallies: Sequence[Tally]) -> None:
        """Take in the running jobs by queue and type."""
        for tally in tallies:
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
