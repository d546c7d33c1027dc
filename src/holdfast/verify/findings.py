"""What a check can find: the kinds of broken promises, and one violation."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Which promise was broken."""

    LOST = "lost"
    """Accepted, but missing from the store."""
    DOUBLE_LEASE = "double lease"
    """Claimed while another claim was open."""
    STALE_WRITE = "stale write"
    """Changed under a claim that was not the newest."""
    TERMINAL_CHANGED = "terminal changed"
    """Changed after it had ended, by anything but an operator's retry."""
    CLAIMED_AFTER_END = "claimed after end"
    TOO_MANY_STARTS = "too many starts"
    TOKEN_NOT_GROWING = "token not growing"  # noqa: S105  # it is about a lease
    """The number of a claim is not one more than the number of the claim before."""
    DEPENDENT_EARLY = "dependent early"
    """Started before its dependencies had ended as required."""
    STUCK = "stuck"
    """Left waiting although nothing blocks it."""
    TWO_FOR_ONE_KEY = "two jobs for one key"
    CANCEL_IGNORED = "cancellation ignored"
    """Reported as cancelled, or asked to stop, but ran on or again."""
    ORDER = "order"
    """Claimed before an older job of its queue, priority and type, by a single claimer."""
    REPEATED_EFFECT = "unexplained repeated effect"
    """Ran more often than its claims explain."""
    MISSING_EFFECT = "completed without effect"
    RECORD = "impossible record"
    """The audit records contradict each other, the lifecycle, or the job."""


class Violation(msgspec.Struct, frozen=True):
    """One broken promise."""

    kind: Kind
    job_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.job_id} {self.text}"
