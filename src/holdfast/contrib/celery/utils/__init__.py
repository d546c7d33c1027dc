"""The modules of ``celery.utils`` that applications import."""
