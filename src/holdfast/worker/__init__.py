"""Running jobs."""

from __future__ import annotations

from holdfast.worker.worker import Worker

__all__ = ["Worker"]
