"""Whether a server's settings keep the jobs it accepted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.errors import StoreError, UnsafeStoreError
from holdfast.store.redis import fields
from holdfast.store.redis.client import RedisClient
from holdfast.store.redis.settings import RedisSettings
from holdfast.store.values import Finding, Level, clock_finding

OLDEST = 7
"""The first major version that can run scripts on a full server."""
WAITAOF = (7, 2)
"""The first version with WAITAOF."""
NEARLY_FULL = 0.8

Facts = dict[str, str]


class RedisHealth(msgspec.Struct, frozen=True):
    """What the server looked like at start, with warnings for the operator."""

    server: str = ""
    policy: str = ""
    aof: str = ""
    """``off``, or how often the append-only file is synced: always, everysec, no."""
    warnings: tuple[str, ...] = ()


async def examine(client: RedisClient, settings: RedisSettings) -> RedisHealth:
    """Examine the server; refuse one that may evict jobs unless the URL accepts that."""
    facts = await _read_facts(client)
    _check_version(facts)
    policy = facts.get("maxmemory_policy", "")
    if policy not in ("noeviction", "") and "eviction" not in settings.accept:
        raise UnsafeStoreError(
            f"redis: maxmemory-policy is {policy!r}, so jobs can be evicted: set it to noeviction,"
            " or add accept=eviction to the URL"
        )
    _check_confirmation(facts, settings)
    warnings = tuple(each.text for each in _settings(facts) if each.level is not Level.OK)
    return RedisHealth(_server(facts), policy, facts["appendfsync"], warnings)


async def findings(client: RedisClient, warnings: Sequence[str], here: datetime) -> list[Finding]:
    """Report on the server as it is now, and repeat earlier warnings."""
    facts = await _read_facts(client)
    seconds, micros = await client.command("TIME")
    found = [
        *_settings(facts),
        _memory(facts),
        _replicas(facts),
        clock_finding(fields.instant(int(seconds) * 1_000_000 + int(micros)), here),
        Finding("version", Level.OK, f"{_server(facts)}."),
    ]
    known = {each.text for each in found}
    return found + [Finding("queue", Level.WARN, text) for text in warnings if text not in known]


def _settings(facts: Facts) -> list[Finding]:
    return [_eviction(facts), _durability(facts)]


def _eviction(facts: Facts) -> Finding:
    policy = facts.get("maxmemory_policy", "")
    if policy in ("noeviction", ""):
        return Finding("eviction", Level.OK, "A full server refuses new jobs and evicts none.")
    return Finding(
        "eviction",
        Level.ERROR,
        f"maxmemory-policy {policy} may evict jobs.",
        "Set maxmemory-policy to noeviction.",
    )


def _durability(facts: Facts) -> Finding:
    level, text, advice = _DURABILITY.get(facts["appendfsync"], _DURABILITY["unknown"])
    return Finding("durability", level, text, advice)


_ON = "Set appendonly yes; appendfsync always if nothing may be lost, else everysec."
_DURABILITY = {
    "off": (
        Level.WARN,
        "appendonly is off: a crash loses everything since the last snapshot.",
        _ON,
    ),
    "no": (
        Level.WARN,
        "appendfsync is no: a power failure loses what the kernel had not written.",
        _ON,
    ),
    "everysec": (
        Level.OK,
        "appendfsync is everysec: a power failure loses up to about a second.",
        "Set appendfsync always, or durability=fsync in the URL, if that is too much.",
    ),
    "always": (Level.OK, "appendfsync is always: an answered call is on disk.", ""),
    "memorydb": (
        Level.OK,
        "Amazon MemoryDB keeps every answered write in a log of several zones.",
        "",
    ),
    "elasticache": (
        Level.WARN,
        "ElastiCache keeps no append-only file: a failover loses what no replica had received.",
        "Use MemoryDB if nothing may be lost; else run a replica and set replicas=1 in the URL.",
    ),
    "unknown": (
        Level.WARN,
        "The server does not report how its append-only file is synced.",
        "Allow the user CONFIG GET, or check appendfsync in the server's settings.",
    ),
}


def _memory(facts: Facts) -> Finding:
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    megabytes = used / 1024**2
    if not most:
        return Finding("memory", Level.OK, f"{megabytes:.0f} MB in use, no maxmemory set.")
    text = f"{megabytes:.0f} MB in use, {used / most:.0%} of maxmemory."
    if used < most * NEARLY_FULL:
        return Finding("memory", Level.OK, text)
    return Finding(
        "memory",
        Level.WARN,
        text,
        "Give the server more memory or shorten the retention of ended jobs: a full server refuses"
        " new jobs.",
    )


def _replicas(facts: Facts) -> Finding:
    if facts.get("role") != "master":
        return Finding(
            "replicas",
            Level.ERROR,
            "This server is a replica: it accepts no jobs.",
            "Point the URL at the primary, or at a sentinel with sentinel=NAME.",
        )
    count = int(facts.get("connected_slaves", 0))
    if not count:
        return Finding("replicas", Level.OK, "No replica: this server holds the only copy.")
    return Finding(
        "replicas",
        Level.OK,
        f"{count} replicas follow; a failover can lose what they had not received.",
        "Set replicas=1 in the URL if a submission must wait for one of them.",
    )


def _server(facts: Facts) -> str:
    name = facts.get("server_name", "redis")
    return f"{name} {facts.get('valkey_version') or facts.get('redis_version', '')}".strip()


def _check_version(facts: Facts) -> None:
    version = facts.get("redis_version", "")
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST:
        raise StoreError(f"redis: server {version} is too old, need {OLDEST}.0 or later")


def _check_confirmation(facts: Facts, settings: RedisSettings) -> None:
    """Refuse a server that cannot confirm what the URL requires."""
    if not settings.fsync:
        return
    if facts["appendfsync"] == "memorydb":
        raise StoreError("redis: MemoryDB confirms every write itself: leave durability=fsync out")
    if facts["appendfsync"] in ("off", "elasticache"):
        raise UnsafeStoreError(
            "redis: durability=fsync needs an append-only file: set appendonly yes, or leave it out"
        )
    major, minor = (facts.get("redis_version", "") + ".0.0").split(".")[:2]
    if major.isdigit() and minor.isdigit() and (int(major), int(minor)) < WAITAOF:
        raise StoreError("redis: durability=fsync needs Redis 7.2, or any Valkey")


async def _read_facts(client: RedisClient) -> Facts:
    """Return the fields of INFO, and under ``appendfsync`` how the append-only file is synced."""
    facts = _facts(await client.command("INFO", "everything"))
    return {**facts, "appendfsync": await _append_only(client, facts)}


async def _append_only(client: RedisClient, facts: Facts) -> str:
    is_elasticache = "ElastiCache" in facts.get("os", "")
    if "MemoryDB" in facts.get("os", ""):
        return "memorydb"
    if facts.get("aof_enabled") != "1":
        return "elasticache" if is_elasticache else "off"
    try:
        answer = await client.command("CONFIG", "GET", "appendfsync")
    except StoreError:  # ElastiCache blocks CONFIG; its append-only file is synced each second
        return "everysec" if is_elasticache else "unknown"
    found = {bytes(k): bytes(v) for k, v in answer.items()} if isinstance(answer, dict) else {}
    if not found and answer:
        found = {answer[0]: answer[1]}
    return found.get(b"appendfsync", b"unknown").decode()


def _facts(info: object) -> Facts:
    if isinstance(info, dict):
        return {str(k): str(v) for k, v in info.items()}
    assert isinstance(info, bytes)
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
