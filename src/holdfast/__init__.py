"""A durable job queue for Python: never lost, never stuck, on SQLite, PostgreSQL and Redis."""

__version__ = "0.1.0"
