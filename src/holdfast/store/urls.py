"""URLs of stores, taken apart no further than needed: a password may hold a question mark."""

from __future__ import annotations

import re

_WITH_OPTIONS = re.compile(r"[^:]*://(?:[^@/]*@)?+[^?]*\?")
_POSTGRES = ("postgresql", "postgres")


def scheme(url: str) -> str:
    """Return what a URL begins with, in lower case."""
    return url.partition(":")[0].lower()


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL store."""
    return scheme(url) in _POSTGRES


def with_option(url: str, option: str) -> str:
    """Return a URL as it was written, and one option more: the last of a name counts."""
    return f"{url}{'&' if _WITH_OPTIONS.match(url) else '?'}{option}"
