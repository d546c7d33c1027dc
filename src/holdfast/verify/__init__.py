"""Proof after the fact: the audit records of every job, judged against the promises.

``Checker`` is pure; ``verify`` feeds it everything a store holds, while workers go on.
"""

from __future__ import annotations

from holdfast.verify.checker import CLOCK_SLACK, Checker, Report
from holdfast.verify.findings import Kind, Violation
from holdfast.verify.rules import violations
from holdfast.verify.scan import verify
from holdfast.verify.witness import Witness

__all__ = [
    "CLOCK_SLACK",
    "Checker",
    "Kind",
    "Report",
    "Violation",
    "Witness",
    "verify",
    "violations",
]
