"""Settings of queues, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from holdfast.store.sqlite.moving import AT_ONCE
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.values import micros_of_span
from holdfast.store.sqlite.writer import Transaction
from holdfast.store.values import LimitRule


def configure(tx: Transaction, queue: str, settings: Mapping[str, object]) -> None:
    """Change settings of a queue; see ``Store.configure``."""
    if settings:
        paused, ageing = tx.execute(statement("queue"), (queue,)).fetchone() or (0, None)
        if "paused" in settings:
            paused = bool(settings["paused"])
        if "ageing" in settings:
            interval = settings["ageing"]
            ageing = micros_of_span(interval) if isinstance(interval, timedelta) else None
            lift_at = None if ageing is None else AT_ONCE
            tx.execute(statement("judge_ageing"), (queue, lift_at))
        tx.execute(statement("configure"), (queue, paused, ageing))
    tx.settings_changed()


def limit(tx: Transaction, scope: str, rule: LimitRule | None) -> None:
    """Set or lift a limit; see ``Store.limit``."""
    if rule is None:
        tx.execute(statement("lift_rule"), (scope,))
    else:
        per = micros_of_span(rule.per)
        tx.execute(statement("set_rule"), (scope, rule.concurrency, rule.rate, per))
    tx.settings_changed()
