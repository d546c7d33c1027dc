"""Claiming: one statement, or one transaction where a limit applies.

Only claims under the same limit wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from holdfast.model.job import Job
from holdfast.store.postgres.arrays import Ints, Longs, Moments, Texts
from holdfast.store.postgres.claim_position import LEVELS
from holdfast.store.postgres.connection import StatementRunner
from holdfast.store.postgres.limits import (
    JobKind,
    PostgresLimits,
    applies,
    read_rules,
    read_usage,
)
from holdfast.store.postgres.rows import ID, NUMBER, TURN, Row, claimed_of, places_of
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Claim

NUMBERS_KEPT = 20_000
PAGE = 200
"""Ready jobs that a claim under limits reads at a time."""
FROZEN = timedelta(seconds=1)
"""How long other claims under a limit wait for a process that stopped in the middle of one."""


async def claim(state: StoreState, want: Claim) -> list[Job]:
    """Claim ready jobs; see ``Store.claim``."""
    if not want.queues or want.limit < 1:
        return []
    override = state.clock.override
    rows: list[Row] = []
    if not _is_limited(state, want):
        rows = await _claim_unlimited(state, want, override)
        if not rows:
            state.rules = {scope for scope, *_ in await state.run("rules", {})}
    if _is_limited(state, want):
        rows, state.rules = await state.pool.atomically(
            lambda session: _claim_limited(session, want, override)
        )
    _remember(state.numbers, rows)
    rows.sort(key=itemgetter(TURN))
    return state.seen(claimed_of(rows, want))


def _is_limited(state: StoreState, want: Claim) -> bool:
    return any(applies(scope, want) for scope in state.rules)


def _remember(numbers: dict[str, int], claimed: Sequence[Row]) -> None:
    if len(numbers) > NUMBERS_KEPT:  # jobs that ended in other processes
        numbers.clear()
    numbers.update(map(itemgetter(ID, NUMBER), claimed))


async def _claim_unlimited(state: StoreState, want: Claim, override: datetime | None) -> list[Row]:
    begun = state.ticks()
    starts = state.positions.start(want.queues, want.types, begun)
    rows = await state.run("claim", claim_params(want, override, starts=starts))
    rows.sort(key=itemgetter(TURN))
    if starts is None:
        ended = state.ticks()
        state.positions.record_full_scan(want.queues, want.types, ended, ended - begun)
    state.positions.record(places_of(rows), want.types, begun)
    return rows


async def _claim_limited(
    session: StatementRunner, want: Claim, override: datetime | None
) -> tuple[list[Row], set[str]]:
    """Claim what the limits have room for; return the rows and the scopes of all limits.

    The transaction locks each limit that applies: such claims wait for each other, and every
    later statement sees what the claim before has used. The server ends the transaction of a
    client that falls silent, so that a frozen process does not stop the others.
    """
    rules = await read_rules(session)
    scopes = [scope for scope in sorted(rules) if applies(scope, want)]
    ((now, _),) = await session.run("limits_lock", lock_params(scopes, override))
    limits = await read_usage(session, rules, now, now)  # one instant, or windows overlap a little
    chosen = await _choose(session, want, limits)
    if limits.opened:
        await session.run(
            "rate_windows_set",
            {
                "scope": Texts(list(limits.opened)),
                "started": Ints([started for started, _ in limits.opened.values()]),
                "until": Moments([until for _, until in limits.opened.values()]),
            },
        )
    rows = await session.run("claim", claim_params(want, now, chosen=chosen)) if chosen else []
    return rows, set(rules)


def lock_params(scopes: Sequence[str], override: datetime | None) -> dict[str, object]:
    """Return the parameters of ``limits_lock.sql``."""
    idle = str(FROZEN // timedelta(milliseconds=1))
    return {"scopes": Texts(scopes), "now": override, "idle": idle}


async def _choose(session: StatementRunner, want: Claim, limits: PostgresLimits) -> list[int]:
    """Return the numbers of the ready jobs that the limits admit."""
    chosen: list[int] = []
    for (queue,) in await session.run("unpaused", {"queues": Texts(want.queues)}):
        place = (-1, 0)
        while len(chosen) < want.limit and f"queue:{queue}" not in limits.full:
            rows = await session.run("ready", _page(queue, want, limits, place))
            for number, type_, limit_key, *_ in rows:
                kind = JobKind(queue, type_, limit_key or "")
                if len(chosen) < want.limit and limits.admits(kind):
                    chosen.append(number)
            if len(rows) < PAGE:
                break
            place = rows[-1][3:5]
    return chosen


def _page(
    queue: str, want: Claim, limits: PostgresLimits, place: tuple[int, int]
) -> dict[str, object]:
    full = limits.full
    return {
        "queue": queue,
        "types": None if want.types is None else Texts(want.types),
        "after_level": place[0],
        "after_place": place[1],
        "limit": PAGE,
        "full_types": Texts([s.removeprefix("task:") for s in full if s.startswith("task:")]),
        "full_keys": Texts([s.removeprefix("key:") for s in full if s.startswith("key:")]),
    }


def claim_params(
    want: Claim,
    override: datetime | None,
    *,
    chosen: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
) -> dict[str, object]:
    """Return the parameters of ``claim.sql``: where to look, or which jobs to take."""
    levels = [(queue, n) for queue in want.queues for n in LEVELS]
    return {
        "queues": Texts([queue for queue, _ in levels]),
        "levels": Ints([n for _, n in levels]),
        "starts": Longs(starts or [0] * len(levels)),
        "types": None if want.types is None else Texts(want.types),
        "limit": want.limit,
        "token": want.token,
        "worker": want.worker,
        "scopes": Texts(_scopes(want)),
        "chosen": None if chosen is None else Longs(chosen),
        "now": override,
    }


def _scopes(want: Claim) -> list[str]:
    kinds = [f"{kind}:{type_}" for type_ in want.types or () for kind in ("task", "key")]
    return [f"queue:{queue}" for queue in want.queues] + kinds
