"""The service: every operation over HTTP, for any language, on any store."""
