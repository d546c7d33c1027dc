"""Celery's module of results, for code that imports from it."""

from holdfast.contrib.celery.results import AsyncResult, EagerResult, GroupResult

__all__ = ["AsyncResult", "EagerResult", "GroupResult"]
