"""Limits and queue settings: reading them, setting them, counting what is used of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from holdfast.store.postgres.connection import PostgresSession, StatementRunner
from holdfast.store.postgres.rows import seconds
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.wake import EVERY_QUEUE
from holdfast.store.values import Claim, LimitRule, LimitState


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
    state.wake.notify({queue})


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
        }
        await state.run("rule_set", params)
        state.rules |= {scope}
    state.wake.notify({EVERY_QUEUE})


async def limits(state: StoreState) -> list[LimitState]:
    """Return every limit with what is used of it; see ``Store.limits``."""

    async def read(session: PostgresSession) -> list[LimitState]:
        rules = await read_rules(session)
        return (await read_usage(session, rules, state.now(), state.clock.override)).states()

    return await state.pool.atomically(read)


class JobKind(msgspec.Struct, frozen=True):
    """What decides which limits apply to a job."""

    queue: str
    type: str
    limit_key: str

    def scopes(self) -> Iterator[tuple[str, str]]:
        """Yield each scope, with the name of the rule that limits it."""
        for scope in (f"queue:{self.queue}", f"task:{self.type}"):
            yield scope, scope
        if self.limit_key:
            rule = f"key:{self.type}"
            yield f"{rule}:{self.limit_key}", rule


class PostgresLimits:
    """The limits as one claim finds them, and what it uses of them."""

    def __init__(
        self,
        rules: dict[str, LimitRule],
        running: Counter[str],
        windows: dict[str, tuple[int, datetime]],
        now: datetime,
    ) -> None:
        self.rules = rules
        self._running = running
        self._windows = windows
        self._now = now
        self.opened: dict[str, tuple[int, datetime]] = {}
        self.full: set[str] = set()

    def admits(self, kind: JobKind) -> bool:
        """Whether every limit has room for a job; if so, it counts against each."""
        scopes = [(s, self.rules[rule]) for s, rule in kind.scopes() if rule in self.rules]
        full = [scope for scope, rule in scopes if self._is_full(scope, rule)]
        self.full.update(full)
        if full:
            return False
        for scope, rule in scopes:
            self._running[scope] += 1
            if rule.rate is not None:
                started, until = self._windows.get(scope, (0, self._now + rule.per))
                self._windows[scope] = self.opened[scope] = (started + 1, until)
        return True

    def states(self) -> list[LimitState]:
        """Return every limit with what is used of it."""
        found = []
        for name, rule in sorted(self.rules.items()):
            found.append(self._state(name, rule))
            if name.startswith("key:"):
                keys = {s for s in (*self._running, *self._windows) if s.startswith(f"{name}:")}
                found.extend(self._state(scope, rule) for scope in sorted(keys))
        return found

    def _is_full(self, scope: str, rule: LimitRule) -> bool:
        if rule.concurrency is not None and self._running[scope] >= rule.concurrency:
            return True
        return rule.rate is not None and self._windows.get(scope, (0, None))[0] >= rule.rate

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        started, until = self._windows.get(scope, (0, None))
        return LimitState(
            scope=scope, rule=rule, running=self._running[scope], started=started, until=until
        )


async def read_rules(session: StatementRunner) -> dict[str, LimitRule]:
    """Read every limit that is set."""
    return {
        scope: LimitRule(concurrency=concurrency, rate=rate, per=timedelta(seconds=per))
        for scope, concurrency, rate, per in await session.run("rules", {})
    }


async def read_usage(
    session: StatementRunner,
    rules: dict[str, LimitRule],
    now: datetime,
    override: datetime | None,
) -> PostgresLimits:
    """Read what is used of the limits."""
    running: Counter[str] = Counter()
    windows: dict[str, tuple[int, datetime]] = {}
    if rules:
        for queue, type_, limit_key, count in await session.run("running", {}):
            for scope, _ in JobKind(queue, type_, limit_key or "").scopes():
                running[scope] += count
        for scope, started, until, at in await session.run("rate_windows", {"now": override}):
            rule = _rule_of(rules, scope)
            if rule is not None and until - at <= rule.per:  # else the clock was set back since
                windows[scope] = (started, until)
    return PostgresLimits(rules, running, windows, now)


def _rule_of(rules: dict[str, LimitRule], scope: str) -> LimitRule | None:
    kind, _, rest = scope.partition(":")
    return rules.get(f"key:{rest.partition(':')[0]}" if kind == "key" else scope)


def applies(scope: str, want: Claim) -> bool:
    """Whether a limit may apply to jobs that a claim could return."""
    kind, _, name = scope.partition(":")
    if kind == "queue":
        return name in want.queues
    return want.types is None or name in want.types
