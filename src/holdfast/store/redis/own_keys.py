"""The keys that all queues share, and which of them another client damaged.

A wrong type under one of these names stops what needs it, so the doctor names the key.
"""

from __future__ import annotations

from holdfast.store.redis.client import RedisClient
from holdfast.store.redis.settings import RedisKeys
from holdfast.store.values import Finding, Level

TYPES = {
    **dict.fromkeys(("ageing", "holds", "jobs", "keys", "kinds", "limits", "pruned"), "hash"),
    **dict.fromkeys(("running", "seen", "settings", "sweeps", "tally", "traces", "turns"), "hash"),
    **dict.fromkeys(("weeds", "windows"), "hash"),
    **dict.fromkeys(("created", "expiring", "minutes", "moved", "over", "ripe", "served"), "zset"),
    **dict.fromkeys(("due", "ends", "held", "names", "ran", "tallied"), "zset"),
    **dict.fromkeys(("s:COMPLETED", "s:FAILED", "s:DEAD_LETTER", "s:CANCELLED"), "zset"),
    **dict.fromkeys(("s:SCHEDULED", "s:DELAYED", "s:RETRYING", "s:PENDING"), "zset"),
    **dict.fromkeys(("kept", "parking", "queues"), "set"),
    **dict.fromkeys(("number", "told"), "string"),
    "events": "stream",
}


async def damaged_keys(client: RedisClient, keys: RedisKeys) -> list[Finding]:
    """Return a finding for each key of a wrong type."""
    found = []
    for name, expected in TYPES.items():
        key = keys.shared(name)
        kind = (await client.command("TYPE", key)).decode()
        if kind not in (expected, "none"):
            text = f"The key {key!r} is a {kind} and must be a {expected}: another client wrote it."
            advice = f"Stop that client, then RENAME {key} to keep it, or DEL it."
            found.append(Finding("keys", Level.ERROR, text, advice))
    return found
