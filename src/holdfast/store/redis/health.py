"""Whether a server's settings can keep what it is given."""

from __future__ import annotations

import msgspec

from holdfast.errors import StoreError, UnsafeStoreError
from holdfast.store.redis.client import Client
from holdfast.store.redis.settings import Settings

OLDEST = 7
"""The first major version that runs scripts which free memory on a full server."""


class Health(msgspec.Struct, frozen=True):
    """What was found at start; ``warnings`` are for the operator's eyes."""

    server: str = ""
    policy: str = ""
    aof: str = ""
    """``off``, or how often the append-only file is synced: always, everysec, no."""
    warnings: tuple[str, ...] = ()


async def examined(client: Client, settings: Settings) -> Health:
    """Look at the server; refuse one that may throw jobs away unless that was accepted."""
    facts = _facts(await client.command("INFO", "everything"))
    _check_version(facts)
    policy = facts.get("maxmemory_policy", "")
    if policy not in ("noeviction", "") and "eviction" not in settings.accept:
        raise UnsafeStoreError(
            f"redis: maxmemory-policy is {policy!r}, so jobs can be evicted: set it to noeviction,"
            " or add accept=eviction to the URL"
        )
    aof = await _append_only(client, facts)
    warnings = []
    if policy not in ("noeviction", ""):
        warnings.append(f"maxmemory-policy {policy} may evict jobs")
    if aof == "off":
        warnings.append("appendonly is off: a crash loses everything since the last snapshot")
    elif aof == "no":
        warnings.append("appendfsync is no: a power failure loses what the kernel had not written")
    name = facts.get("server_name", "redis")
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    return Health(f"{name} {version}".strip(), policy, aof, tuple(warnings))


def _check_version(facts: dict[str, str]) -> None:
    version = facts.get("redis_version", "")
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST:
        raise StoreError(f"redis: server {version} is too old, need {OLDEST}.0 or later")


async def _append_only(client: Client, facts: dict[str, str]) -> str:
    if facts.get("aof_enabled") != "1":
        return "off"
    try:
        answer = await client.command("CONFIG", "GET", "appendfsync")
    except StoreError:
        return "unknown"
    found = {bytes(k): bytes(v) for k, v in answer.items()} if isinstance(answer, dict) else {}
    if not found and answer:
        found = {answer[0]: answer[1]}
    return found.get(b"appendfsync", b"unknown").decode()


def _facts(info: object) -> dict[str, str]:
    if isinstance(info, dict):
        return {str(k): str(v) for k, v in info.items()}
    assert isinstance(info, bytes)
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
