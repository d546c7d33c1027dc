"""Claiming: one statement, and a transaction for jobs to which a limit with room applies.

The statement stops at the first such job, so that jobs start in their order. Jobs whose limit is
full are passed over, and not read again while it stays full. Only claims under limits with room
wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.model.job import Job
from holdfast.store.postgres.arrays import Ints, Longs, Moments, Texts
from holdfast.store.postgres.claim_position import LEVELS, NO_SCOPES, Scopes, passed
from holdfast.store.postgres.connection import StatementRunner
from holdfast.store.postgres.limit_memory import JobKind, applicable
from holdfast.store.postgres.limits import LimitUsage, read_rules, read_usage
from holdfast.store.postgres.rows import ID, NUMBER, TURN, Row, claimed_of, places_of
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Claim

NUMBERS_KEPT = 20_000
FROZEN = timedelta(seconds=1)
"""How long other claims under a limit wait for a process that stopped in the middle of one."""


async def claim(state: StoreState, want: Claim) -> list[Job]:
    """Claim ready jobs; see ``Store.claim``."""
    if not want.queues or want.limit < 1:
        return []
    await state.refresh()
    claiming = Claiming(state, want)
    state.wake.claim_begins()
    try:
        await claiming.run()
    except HoldfastError:
        if not claiming.rows:  # jobs that it has must not wait for the end of their leases
            raise
    finally:
        state.wake.claim_ended(want, len(claiming.rows))
    rows = claiming.rows
    if not rows and state.rule_reading.is_due:
        state.limits.rules = await state.rule_reading.run(read_rules(state.pool))
    _remember(state.numbers, rows)
    return state.seen(claimed_of(rows, want))


def _remember(numbers: dict[str, int], claimed: Sequence[Row]) -> None:
    if len(numbers) > NUMBERS_KEPT:  # jobs that ended in other processes
        numbers.clear()
    numbers.update(map(itemgetter(ID, NUMBER), claimed))


class Claiming:
    """One claim: in turns without and with locks, until there are enough jobs or no more."""

    def __init__(self, state: StoreState, want: Claim) -> None:
        self._state = state
        self._want = want
        self.rows: list[Row] = []
        self._usage: LimitUsage | None = None

    async def run(self) -> None:
        """Claim jobs into ``rows``."""
        is_limited, goes_on = await self._begins_limited(), True
        while goes_on:
            rest = replace(self._want, limit=self._want.limit - len(self.rows))
            if is_limited:
                goes_on, is_limited = await self._take_limited(rest), False
            else:
                taken, is_limited = await _claim_unlimited(self._state, rest, self._usage)
                self.rows += taken
                goes_on = is_limited and not self._is_filled

    async def _begins_limited(self) -> bool:
        """Whether a job with a limit that has room is likely to be among the first."""
        seen, want = self._state.limits, self._want
        if seen.rules and seen.begins_limited(want):
            return True
        if not (seen.full and applicable(seen.full, want)):
            return False
        self._usage = await read_usage(self._state.pool, self._state.clock.override)
        return seen.update(self._usage.rules, self._usage.full, want)

    async def _take_limited(self, rest: Claim) -> bool:
        """Claim under limits; return whether there may be more."""
        page = await self._state.pool.atomically(partial(_claim_limited, self._state, rest))
        self._usage = page.usage
        self.rows += page.rows
        seen = self._state.limits
        seen.update(page.usage.rules, page.usage.full, rest)
        seen.claimed(rest, left=page.has_limited and self._is_filled)
        return not (page.is_last or self._is_filled)

    @property
    def _is_filled(self) -> bool:
        return len(self.rows) == self._want.limit


async def _claim_unlimited(
    state: StoreState, want: Claim, usage: LimitUsage | None
) -> tuple[list[Row], bool]:
    """Claim jobs to which no limit applies; return them, and whether it met another one.

    Passes over the jobs of limits that are full.
    """
    full = NO_SCOPES if usage is None else applicable(usage.full, want)
    begun = state.ticks()
    scan = state.positions.scan(want.queues, want.types, full, begun)
    params = claim_params(want, state.clock.override, starts=scan.starts, full=full)
    found = await state.pool.run("claim", params)
    rows = sorted([row for row in found if row[TURN] is not None], key=itemgetter(TURN))
    is_met = len(rows) < len(found)
    places = places_of(rows)
    if usage is not None and full:
        at_end = not is_met and len(rows) < want.limit
        places = passed(want.queues, places, usage.last_place, at_end=at_end)
    state.positions.record(scan, places, begun, state.ticks())
    return rows, is_met


class LimitedPage(msgspec.Struct):
    """What a claim under limits took of the first ready jobs."""

    rows: list[Row]
    usage: LimitUsage
    has_limited: bool
    """Whether a limit applies to one of these jobs."""
    is_last: bool
    """Whether no more ready jobs follow."""


async def _claim_limited(state: StoreState, want: Claim, session: StatementRunner) -> LimitedPage:
    """Claim those of the first ready jobs for which the limits have room.

    The transaction locks each limit that applies: such claims wait for each other, and every
    later statement sees what the claim before has used. The server ends the transaction of a
    client that falls silent, so that a frozen process does not stop the others.
    """
    override = state.clock.override
    ((locked, _),) = await session.run("limits_lock", lock_params(want))
    usage = await read_usage(session, override)
    if not applicable(usage.rules, want) <= set(locked or ()):  # a limit was set meanwhile
        return LimitedPage([], usage, has_limited=True, is_last=True)
    full = applicable(usage.full, want)
    scan = state.positions.scan(want.queues, want.types, full, state.ticks())
    params = claim_params(want, override, starts=scan.starts if full else None, full=full)
    found = await session.run("ready", params)
    chosen = [
        number
        for number, queue, type_, _, limit_key in found
        if usage.admits(JobKind(queue, type_, limit_key or ""))
    ]
    if raised := usage.raised():
        await session.run("rate_windows_set", _windows(raised))
    rows = []
    if chosen:  # at the instant of the rates
        rows = await session.run("claim", claim_params(want, usage.now, chosen=chosen))
    return LimitedPage(
        sorted(rows, key=itemgetter(TURN)),
        usage,
        has_limited=any(row[3] for row in found),
        is_last=len(found) < want.limit,
    )


def _windows(raised: Mapping[str, tuple[int, datetime]]) -> dict[str, object]:
    return {
        "scope": Texts(list(raised)),
        "started": Ints([started for started, _ in raised.values()]),
        "until": Moments([until for _, until in raised.values()]),
    }


def lock_params(want: Claim) -> dict[str, object]:
    """Return the parameters of ``limits_lock.sql``."""
    idle = str(FROZEN // timedelta(milliseconds=1))
    return {"scopes": Texts(_scopes(want)), "types": _types(want), "idle": idle}


def claim_params(
    want: Claim,
    override: datetime | None,
    *,
    chosen: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
    full: Scopes = NO_SCOPES,
) -> dict[str, object]:
    """Return the parameters of ``claim.sql`` and ``ready.sql``."""
    levels = [(queue, n) for queue in want.queues for n in LEVELS]
    full_keys = _names(full, "key:")
    return {
        "queues": Texts([queue for queue, _ in levels]),
        "levels": Ints([n for _, n in levels]),
        "starts": Longs(starts or [0] * len(levels)),
        "types": _types(want),
        "limit": want.limit,
        "token": want.token,
        "worker": want.worker,
        "scopes": Texts(_scopes(want)),
        "full_queues": Texts(_names(full, "queue:")),
        "full_types": Texts(_names(full, "task:")),
        "full_keyed": Texts(list({key.partition(":")[0] for key in full_keys})),
        "full_keys": Texts(full_keys),
        "chosen": None if chosen is None else Longs(chosen),
        "now": override,
    }


def _types(want: Claim) -> Texts | None:
    return None if want.types is None else Texts(want.types)


def _names(scopes: Scopes, kind: str) -> list[str]:
    return [scope.removeprefix(kind) for scope in scopes if scope.startswith(kind)]


def _scopes(want: Claim) -> list[str]:
    kinds = [f"{kind}:{type_}" for type_ in want.types or () for kind in ("task", "key")]
    return [f"queue:{queue}" for queue in want.queues] + kinds
