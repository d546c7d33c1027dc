"""Benchmarks of the PostgreSQL store, beside its peers and beside the same work by hand."""
