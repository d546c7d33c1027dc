"""The same stores as in the conformance suite."""

from __future__ import annotations

from tests.conformance.conftest import place

__all__ = ["place"]
