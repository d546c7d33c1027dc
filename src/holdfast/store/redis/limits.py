"""Settings of queues, and limits that hold across all workers with what is used of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from holdfast.model.job import State
from holdfast.model.measures import Tally
from holdfast.store.damage import readable
from holdfast.store.redis import fields
from holdfast.store.redis.read import read_tallies
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import LimitRule, LimitState


async def configure(session: RedisSession, queue: str, settings: Mapping[str, object]) -> None:
    """Change settings of a queue; see ``Store.configure``."""
    paused, ageing = "", ""
    if "paused" in settings:
        paused = "1" if settings["paused"] else "0"
    if "ageing" in settings:
        span = settings["ageing"]
        ageing = str(span // fields.MICROSECOND) if isinstance(span, timedelta) else "0"
    closed_for = settings.get("closed_for")
    closed = max(1, closed_for // fields.MILLISECOND) if isinstance(closed_for, timedelta) else 0
    await session.call("configure", queue, paused, ageing, closed)


async def limit(session: RedisSession, scope: str, rule: LimitRule | None) -> None:
    """Set or remove a limit; see ``Store.limit``."""
    if rule is None:
        await session.call("limit", scope, "")
        return
    terms: dict[str, int] = {"per": rule.per // fields.MICROSECOND}
    if rule.concurrency is not None:
        terms["concurrency"] = rule.concurrency
    if rule.rate is not None:
        terms["rate"] = rule.rate
    if rule.pace is not None:
        terms["burst"] = rule.pace.burst
    await session.call("limit", scope, msgspec.msgpack.encode(terms))


async def limits(session: RedisSession) -> list[LimitState]:
    """Return every limit with what is used of it; see ``Store.limits``."""
    tally, (rules, windows, running, queues, now) = await session.call(
        "counts", "limits", fields.scope(None), ""
    )
    usage = Usage(dict(readable(fields.pairs(rules).items(), _rule)), int(now))
    usage.add_windows(fields.pairs(windows))
    usage.add_keys(fields.pairs(running))
    usage.add_queues(queues)
    usage.add_tallies(read_tallies(tally))
    return usage.states()


def _rule(item: tuple[bytes, bytes]) -> tuple[str, LimitRule]:
    terms = msgspec.msgpack.decode(item[1], type=dict[str, int])
    if min(terms.values()) < 0 or (terms.get("rate") is not None and terms["per"] < 1):
        raise ValueError("damaged by another program")  # the scripts take it for none, too
    return item[0].decode(), LimitRule(
        concurrency=terms.get("concurrency"),
        rate=terms.get("rate"),
        per=timedelta(microseconds=terms["per"]),
        burst=terms.get("burst"),
    )


class Usage:
    """How much of each limit is used now."""

    def __init__(self, rules: dict[str, LimitRule], now: int) -> None:
        self._rules = rules
        self._now = now
        self._starts: dict[str, tuple[int, int]] = {}
        """How many of a burst are used, and the microseconds until the next start."""
        self._running_by_key: dict[str, int] = {}
        self._running: dict[str, int] = {}

    def add_windows(self, windows: dict[bytes, bytes]) -> None:
        """Add what is used of the rates."""
        for name, started, at in readable(windows.items(), _window):
            rule = self._rule_of(name)
            pace = rule.pace if rule else None
            if pace and (debt := pace.debt(started, at - self._now)):
                self._starts[name] = (pace.used(debt), pace.wait(debt) or 0)

    def add_keys(self, running: dict[bytes, bytes]) -> None:
        """Add the running jobs by limit key."""
        for key, count in readable(running.items(), _running):
            self._running_by_key[f"key:{key}"] = count

    def add_queues(self, queues: Sequence[tuple[bytes, int, int, int, bytes, bytes]]) -> None:
        """Add the limits of whole queues, which BullMQ clients may have set or used."""
        for name, concurrency, rate, duration, started, ends in queues:
            scope = f"queue:{fields.text(name)}"
            rule = LimitRule(
                concurrency=concurrency or None,
                rate=rate or None,
                per=timedelta(milliseconds=duration or 1000),
                burst=rate or None,
            )
            is_ours = self._rules.setdefault(scope, rule) is not rule
            is_full = rate and int(started) >= rate
            if is_full:
                burst = self._rules[scope].burst or rate
                self._starts[scope] = (burst, max(1, int(ends) - self._now))
            elif rate and int(started) and not is_ours:
                self._starts[scope] = (int(started), 0)

    def add_tallies(self, tallies: Sequence[Tally]) -> None:
        """Add the running jobs by queue and type."""
        for tally in tallies:
            if tally.state is State.RUNNING:
                for scope in (f"queue:{tally.queue}", f"task:{tally.type}"):
                    self._running[scope] = self._running.get(scope, 0) + tally.count

    def states(self) -> list[LimitState]:
        """Return every limit by scope; a limit per key is followed by its keys in use."""
        found: list[LimitState] = []
        for scope, rule in sorted(self._rules.items()):
            found.append(self._state(scope, rule))
            if scope.startswith("key:"):
                used = {s for s, n in self._running_by_key.items() if n > 0} | set(self._starts)
                keys = sorted(each for each in used if each.startswith(f"{scope}:"))
                found.extend(self._state(each, rule) for each in keys)
        return found

    def _rule_of(self, scope: str) -> LimitRule | None:
        kind, _, rest = scope.partition(":")
        return self._rules.get(f"key:{rest.partition(':')[0]}" if kind == "key" else scope)

    def _state(self, scope: str, rule: LimitRule) -> LimitState:
        nothing = (rule.burst or 1, 0) if rule.rate == 0 else (0, 0)
        started, wait = self._starts.get(scope, nothing)
        return LimitState(
            scope=scope,
            rule=rule,
            running=self._running_by_key.get(scope, 0) + self._running.get(scope, 0),
            started=started,
            until=fields.instant(self._now + wait) if wait else None,
        )


def _window(item: tuple[bytes, bytes]) -> tuple[str, int, int]:
    started, ends = map(int, item[1].split(b":"))
    return item[0].decode(), started, ends


def _running(item: tuple[bytes, bytes]) -> tuple[str, int]:
    return item[0].decode(), int(item[1])
