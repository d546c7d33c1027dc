"""Checks the audit records of every job against the promises of the queue.

``Checker`` is pure; ``verify`` gives it every job of a store, while workers may keep running.
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
