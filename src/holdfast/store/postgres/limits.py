"""Limits and queue settings: reading them, setting them, counting what is used of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from holdfast.store.postgres.connection import StatementRunner
from holdfast.store.postgres.limit_memory import JobKind, rule_of
from holdfast.store.postgres.rows import Row, seconds
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.wake import EVERY_QUEUE
from holdfast.store.values import LimitRule, LimitState

MICROSECOND = timedelta(microseconds=1)


async def configure(state: StoreState, queue: str, settings: Mapping[str, object]) -> None:
    """Change settings of a queue; see ``Store.configure``."""
    if not settings:
        return
    ageing = settings.get("ageing")
    params = {
        "queue": queue,
        "paused": settings.get("paused"),
        "set_ageing": "ageing" in settings,
        "ageing": seconds(ageing) if isinstance(ageing, timedelta) else None,
    }
    await state.run("configure", params)
    state.wake.notify_all(queue)


async def limit(state: StoreState, scope: str, rule: LimitRule | None) -> None:
    """Set or lift a limit; see ``Store.limit``."""
    if rule is None:
        await state.run("rule_lift", {"scope": scope})
    else:
        params = {
            "scope": scope,
            "concurrency": rule.concurrency,
            "rate": rule.rate,
            "per": rule.per.total_seconds(),
            "burst": rule.burst,
        }
        await state.run("rule_set", params)
        state.limits.rules |= {scope: rule}
    state.wake.notify_all(EVERY_QUEUE)


async def limits(state: StoreState) -> list[LimitState]:
    """Return every limit with what is used of it; see ``Store.limits``."""
    await state.refresh()
    return (await read_usage(state.pool, state.clock.override)).states()


class LimitUsage:
    """The limits as one call finds them, and what it uses of them."""

    def __init__(
        self,
        rules: dict[str, LimitRule],
        running: Counter[str],
        debts: dict[str, int],
        now: datetime,
        last_place: int,
    ) -> None:
        self.rules = rules
        self.now = now
        self.last_place = last_place
        """The newest place that was given, in any queue."""
        self._running = running
        self._debts = debts
        self._raised: set[str] = set()
        self.full = {
            scope
            for scope in (*rules, *running, *debts)
            if (rule := rules.get(rule_of(scope))) and self._is_full(scope, rule)
        }

    def admits(self, kind: JobKind) -> bool:
        """Whether every limit has room for a job; if so, it counts against each."""
        scopes = [(s, self.rules[rule]) for s, rule in kind.scopes() if rule in self.rules]
        full = [scope for scope, rule in scopes if self._is_full(scope, rule)]
        self.full.update(full)
        if full:
            return False
        for scope, rule in scopes:
            self._running[scope] += 1
            if pace := rule.pace:
                self._debts[scope] = self._debts.get(scope, 0) + pace.per
                self._raised.add(scope)
        return True

    def raised(self) -> dict[str, tuple[int, datetime]]:
        """Return what to record of the rates against which a job counts."""
        found = {}
        for scope in self._raised:
            if pace := self.rules[rule_of(scope)].pace:
                started, ahead = pace.recorded(self._debts[scope])
                found[scope] = (started, self.now + ahead * MICROSECOND)
        return found

    def states(self) -> list[LimitState]:
        """Return every limit with what is used of it."""
        found = []
        for name, rule in sorted(self.rules.items()):
            found.append(self._state(name, rule))
            if name.startswith("key:"):
                keys = {s for s in (*self._running, *self._debts) if s.startswith(f"{name}:")}
                found.extend(self._state(scope, rule) for scope in sorted(keys))
        return found

    def _is_full(self, scope: str, rule: LimitRule) -> bool:
        if rule.concurrency is not None and self._running[scope] >= rule.concurrency:
            return True
        pace = rule.pace
        return pace is not None and not pace.room(self._debts.get(scope, 0))

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        started, until = 0, None
        if pace := rule.pace:
            debt = self._debts.get(scope, 0)
            started, wait = pace.used(debt), pace.wait(debt)
            until = self.now + wait * MICROSECOND if wait else None
        return LimitState(
            scope=scope, rule=rule, running=self._running[scope], started=started, until=until
        )


async def read_rules(runner: StatementRunner) -> dict[str, LimitRule]:
    """Read every limit that is set."""
    return {scope: _rule(*rest) for scope, *rest in await runner.run("rules", {})}


async def read_usage(runner: StatementRunner, override: datetime | None) -> LimitUsage:
    """Read the limits and what is used of them."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for kind, *row in await runner.run("usage", {"now": override}):
        found[kind].append(tuple(row))
    ((*_, last_place, _, _, _, now),) = found["clock"]
    rules = {scope: _rule(*terms) for scope, _, _, *terms, _ in found["rule"]}
    running: Counter[str] = Counter()
    for queue, type_, limit_key, count, *_ in found["running"]:
        for scope, _ in JobKind(queue, type_, limit_key or "").scopes():
            running[scope] += count
    debts = {}
    for scope, _, _, started, *_, until in found["window"]:
        rule = rules.get(rule_of(scope))
        pace = rule.pace if rule else None
        if pace and (debt := pace.debt(started, (until - now) // MICROSECOND)):
            debts[scope] = debt
    return LimitUsage(rules, running, debts, now, last_place)


def _rule(concurrency: int | None, rate: int | None, per: float, burst: int | None) -> LimitRule:
    return LimitRule(concurrency=concurrency, rate=rate, per=timedelta(seconds=per), burst=burst)
