"""Integrations: frameworks, tracing and error reporting, each behind an extra of its own."""
