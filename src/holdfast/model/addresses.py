"""Addresses on the web that a job may name."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_web_address(value: str) -> bool:
    """Whether a text is an http or https address without credentials."""
    if any(character <= " " for character in value):
        return False
    try:
        parts = urlsplit(value)
        return bool(
            parts.scheme in ("http", "https")
            and parts.hostname
            and parts.username is None
            and parts.port != 0
        )
    except ValueError:
        return False
