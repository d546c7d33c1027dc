"""The variables that child processes get: none of holdfast's secrets, and no others if so set.

A child never opens the store, so it needs neither the password of its URL nor its keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

ALLOWED = "HOLDFAST_WORKER_ENVIRONMENT"
"""Names or patterns, separated by commas: with it, children get no other variables."""
ALWAYS = (
    *("HOLDFAST_*", "PYTHON*", "PATH", "HOME", "USER", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_*", "SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT"),
)
"""What an interpreter needs on any system."""
_OURS = "HOLDFAST_"
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD", re.ASCII)


def child_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a worker that its children may have."""
    named = [part.strip() for part in given.get(ALLOWED, "").split(",") if part.strip()]
    allowed = (*ALWAYS, *named) if named else ("*",)
    return {
        name: _without_password(value) if name.startswith(_OURS) else value
        for name, value in given.items()
        if not (name.startswith(_OURS) and _SECRET.search(name))
        and any(fnmatchcase(name, pattern) for pattern in allowed)
    }


def _without_password(value: str) -> str:
    try:
        password = urlsplit(value).password
    except ValueError:
        return ""
    return value if password is None else value.replace(f":{password}@", "@", 1)
