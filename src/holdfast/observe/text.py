"""Text from elsewhere on one line of a terminal or a log: visible, bounded, harmless.

Control characters could forge a second line or move the cursor, bidirectional marks could
reorder what a person reads; both are shown as escapes.
"""

from __future__ import annotations

import re
from datetime import datetime

LONGEST = 500
_HARMFUL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def plain(value: object, limit: int = LONGEST) -> str:
    """Return a value as one harmless line of at most ``limit`` characters."""
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return _HARMFUL.sub(_escaped, cut)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = {9: r"\t", 10: r"\n", 13: r"\r"}
    return short.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
