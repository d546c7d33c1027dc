"""Benchmarks of the PostgreSQL store, compared with its peers and with plain SQL."""
