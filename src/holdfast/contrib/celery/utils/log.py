"""Celery's module of loggers, for code that imports from it."""

from __future__ import annotations

import logging


def get_task_logger(name: str) -> logging.Logger:
    """Return a logger for a task; a worker adds job id, type and attempt to its lines."""
    return logging.getLogger(name)


__all__ = ["get_task_logger"]
