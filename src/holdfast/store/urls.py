"""URLs of stores, parsed no further than needed: a password may contain a question mark."""

from __future__ import annotations

import re

_WITH_OPTIONS = re.compile(r"[^:]*://(?:[^@/]*@)?+[^?]*\?")
_POSTGRES = ("postgresql", "postgres")


def scheme(url: str) -> str:
    """Return the scheme of a URL in lower case."""
    return url.partition(":")[0].lower()


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL store."""
    return scheme(url) in _POSTGRES


def with_option(url: str, option: str) -> str:
    """Return a URL with one more option; the last option of a name counts."""
    return f"{url}{'&' if _WITH_OPTIONS.match(url) else '?'}{option}"
