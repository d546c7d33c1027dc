"""What a check can find: kinds of broken promises, and one finding."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Which promise was broken."""

    LOST = "lost"
    """Accepted, and not there."""
    DOUBLE_LEASE = "double lease"
    """Claimed while somebody else's claim was open, or one claim given twice."""
    STALE_WRITE = "stale write"
    """Changed by somebody whose claim was not the newest."""
    TERMINAL_CHANGED = "terminal changed"
    """Moved after it had ended, by anything but an operator's retry."""
    CLAIMED_AFTER_END = "claimed after end"
    TOO_MANY_STARTS = "too many starts"
    TOKEN_NOT_GROWING = "token not growing"  # noqa: S105  # it is about a lease
    """The number of a claim is not one more than that of the claim before."""
    DEPENDENT_EARLY = "dependent early"
    """Started before what it waits for had ended as it must."""
    STUCK = "stuck"
    """Left waiting although nothing stands in its way."""
    TWO_FOR_ONE_KEY = "two jobs for one key"
    CANCEL_LIE = "cancel lie"
    """Said to be cancelled, or asked to stop, and run on or again."""
    ORDER = "order"
    """Served before an older job of its queue, priority and type, by a single claimer."""
    REPEATED_EFFECT = "unexplained repeated effect"
    """Run more often than its claims explain."""
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
