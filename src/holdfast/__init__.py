"""A durable job queue: one job model, one set of promises, four stores."""

__version__ = "0.1.0"

__all__ = ["__version__"]
