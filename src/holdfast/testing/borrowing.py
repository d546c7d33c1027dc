"""Putting another store, clock and chance under an app for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.operations.sync import SyncOperations
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Chance
from holdfast.store import Store

BORROWED = ("clock", "chance", "_own_store", "_operations", "_loop", "_users", "_sync")


@contextmanager
def borrowed(
    app: Holdfast, store: Store, clock: Clock, chance: Chance, sync: SyncOperations
) -> Iterator[None]:
    """Let an app, which may be started or not, stand on something else; then give it back."""
    saved = {name: getattr(app, name) for name in BORROWED}
    app.clock, app.chance = clock, chance
    put_under(app, store)
    app._sync = sync
    app._users = 1
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(app, name, value)


def put_under(app: Holdfast, store: Store) -> None:
    """Let a borrowed app go on over a store, as a new process would."""
    app._own_store = store
    app._operations = app.over(store)
