"""The verb amend: what callers may change of a stored job."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.postgres.connection import Params, PostgresSession
from holdfast.store.postgres.read import get
from holdfast.store.postgres.rows import document
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Change, Swapped


async def amend(state: StoreState, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose job is unchanged; see ``Store.amend``."""
    written = await state.pool.atomically(lambda session: _write_all(session, changes))
    state.positions.reset()  # a ready job may now stand before those that were claimed
    state.wake.notify(state.woken(changes, [n for n, done in enumerate(written) if done]))
    stale = [c.before.id for c, done in zip(changes, written, strict=True) if not done]
    stored = dict(zip(stale, await get(state, stale), strict=True)) if stale else {}
    return [
        Swapped(written=True) if done else Swapped(written=False, job=stored[change.before.id])
        for change, done in zip(changes, written, strict=True)
    ]


async def _write_all(session: PostgresSession, changes: Sequence[Change]) -> list[bool]:
    """Write one change after another: the second of a job must see the first."""
    return [bool(await session.run("amend", _params(change))) for change in changes]


def _params(change: Change) -> Params:
    job = change.after
    return {
        "id": job.id,
        "was": change.before.revision,
        "revision": job.revision,
        "priority": int(job.priority),
        "due_at": job.due_at,
        "tags": tags.decode() if (tags := document(job.tags or None)) else None,
        "correlation_id": job.correlation_id or None,
        "callback_url": job.callback_url or None,
    }
