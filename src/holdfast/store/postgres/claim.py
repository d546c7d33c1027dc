"""Claiming under limits: one claim at a time decides who still has room.

Only claims that the same limit applies to wait for each other; the rest go the short way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.store.postgres.arrays import Ints, Longs, Moments, Texts
from holdfast.store.postgres.claim_position import LEVELS
from holdfast.store.postgres.connection import Statements
from holdfast.store.postgres.rows import Row
from holdfast.store.values import Claim, LimitRule, LimitState

PAGE = 200
"""Ready jobs looked at in one go."""


class JobKind(msgspec.Struct, frozen=True):
    """What decides which limits a job falls under."""

    queue: str
    type: str
    limit_key: str

    def scopes(self) -> Iterator[tuple[str, str]]:
        """Each scope, with the name of the rule that limits it."""
        for scope in (f"queue:{self.queue}", f"task:{self.type}"):
            yield scope, scope
        if self.limit_key:
            rule = f"key:{self.type}"
            yield f"{rule}:{self.limit_key}", rule


class PostgresLimits:
    """The limits as one claim finds them, and what it takes of them."""

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
        """Every limit with what is used of it."""
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


async def read_rules(session: Statements) -> dict[str, LimitRule]:
    """Read every limit that is set."""
    return {
        scope: LimitRule(concurrency=concurrency, rate=rate, per=timedelta(seconds=per))
        for scope, concurrency, rate, per in await session.run("rules", {})
    }


async def read_gate(
    session: Statements, rules: dict[str, LimitRule], now: datetime, judged: datetime | None
) -> PostgresLimits:
    """Read what is used of the limits."""
    running: Counter[str] = Counter()
    windows: dict[str, tuple[int, datetime]] = {}
    if rules:
        for queue, type_, limit_key, count in await session.run("running", {}):
            for scope, _ in JobKind(queue, type_, limit_key or "").scopes():
                running[scope] += count
        for scope, started, until in await session.run("rate_windows", {"now": judged}):
            windows[scope] = (started, until)
    return PostgresLimits(rules, running, windows, now)


def applies(scope: str, want: Claim) -> bool:
    """Whether jobs that a claim could bring may fall under a limit."""
    kind, _, name = scope.partition(":")
    if kind == "queue":
        return name in want.queues
    return want.types is None or name in want.types


async def claim_limited(
    session: Statements, want: Claim, judged: datetime | None
) -> tuple[list[Row], set[str]]:
    """Claim what the limits leave room for; tell which limits there are.

    The transaction holds a lock for each limit that applies: such claims wait for each other,
    and every statement after it sees what the claim before has taken.
    """
    rules = await read_rules(session)
    scopes = [scope for scope in sorted(rules) if applies(scope, want)]
    ((now,),) = await session.run("gate", {"scopes": Texts(scopes), "now": judged})
    gate = await read_gate(session, rules, now, now)  # one instant, or windows overlap a little
    chosen = await _choose(session, want, gate)
    if gate.opened:
        await session.run(
            "rate_windows_set",
            {
                "scope": Texts(list(gate.opened)),
                "started": Ints([started for started, _ in gate.opened.values()]),
                "until": Moments([until for _, until in gate.opened.values()]),
            },
        )
    rows = await session.run("claim", claim_params(want, now, chosen=chosen)) if chosen else []
    return rows, set(rules)


async def _choose(session: Statements, want: Claim, gate: PostgresLimits) -> list[int]:
    chosen: list[int] = []
    for (queue,) in await session.run("unpaused", {"queues": Texts(want.queues)}):
        place = (-1, 0)
        while len(chosen) < want.limit and f"queue:{queue}" not in gate.full:
            rows = await session.run("ready", _page(queue, want, gate, place))
            for number, type_, limit_key, *_ in rows:
                if len(chosen) < want.limit and gate.admits(JobKind(queue, type_, limit_key or "")):
                    chosen.append(number)
            if len(rows) < PAGE:
                break
            place = rows[-1][3:5]
    return chosen


def _page(
    queue: str, want: Claim, gate: PostgresLimits, place: tuple[int, int]
) -> dict[str, object]:
    return {
        "queue": queue,
        "types": None if want.types is None else Texts(want.types),
        "after_level": place[0],
        "after_place": place[1],
        "most": PAGE,
        "full_types": Texts([s.removeprefix("task:") for s in gate.full if s.startswith("task:")]),
        "full_keys": Texts([s.removeprefix("key:") for s in gate.full if s.startswith("key:")]),
    }


def claim_params(
    want: Claim,
    judged: datetime | None,
    *,
    chosen: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> dict[str, object]:
    """What ``claim.sql`` is given: where to look, or which jobs to take."""
    stretches = [(queue, n) for queue in want.queues for n in LEVELS]
    return {
        "queues": Texts([queue for queue, _ in stretches]),
        "levels": Ints([n for _, n in stretches]),
        "heads": Longs(heads or [0] * len(stretches)),
        "types": None if want.types is None else Texts(want.types),
        "most": want.limit,
        "token": want.token,
        "worker": want.worker,
        "scopes": Texts(_scopes(want)),
        "chosen": None if chosen is None else Longs(chosen),
        "now": judged,
    }


def _scopes(want: Claim) -> list[str]:
    kinds = [f"{kind}:{type_}" for type_ in want.types or () for kind in ("task", "key")]
    return [f"queue:{queue}" for queue in want.queues] + kinds
