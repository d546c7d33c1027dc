"""What a URL says about a Redis store."""

from __future__ import annotations

import base64
import re
from datetime import timedelta
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from holdfast.errors import StoreError
from holdfast.store.contract import EVENTS_KEPT

RESERVED = frozenset(
    {
        *("active", "wait", "waiting-children", "paused", "id", "delayed", "prioritized"),
        *("stalled-check", "completed", "failed", "stalled", "repeat", "limiter", "meta"),
        *("events", "pc", "marker", "de", "dn", "metrics", "priority", "delay", "hf", ""),
    }
)
"""Ids under which a job would overwrite one of its queue's own keys."""


class RedisKeys:
    """The keys of one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.jobs = f"{prefix}:hf:jobs"

    def shared(self, name: str) -> str:
        """Return a key that belongs to all queues together."""
        return f"{self.prefix}:hf:{name}"

    def queue(self, queue: str, name: str) -> str:
        """Return a key of one queue."""
        return f"{self.prefix}:{queue}:{name}"

    def client_name(self, queue: str) -> str:
        """Return the connection name by which BullMQ's ``getWorkers`` finds a worker."""
        return f"{self.prefix}:{base64.b64encode(queue.encode()).decode()}"


def is_usable(job_id: str) -> bool:
    """Whether a job of this id can be written: not reserved, no separator, not v4's marker."""
    return job_id not in RESERVED and ":" not in job_id and job_id != "0"


_PREFIX = re.compile(r"[^\s:\x00]{1,64}")
_TAG = re.compile(r"\{[^{}]+\}")
_OURS = frozenset(
    {
        *("prefix", "events_kept", "timeout", "accept", "cluster", "sentinel", "foreign_lifetime"),
        *("durability", "replicas", "confirm_within", "unknown_backoff"),
    }
)
FOREVER = timedelta(days=36_500)
"""The lifetime of jobs that have none."""
ACCEPTABLE = frozenset({"eviction", "unknown-version"})
"""Weaker promises that a user may name in ``accept=``."""

UNKNOWN_BACKOFFS = ("exponential", "fixed", "none")
"""What may stand in for a backoff strategy that only Node knows."""
MOST = 10**9


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a server and which promises to insist on."""

    url: str
    prefix: str = "bull"
    events_kept: int = EVENTS_KEPT
    timeout: timedelta = timedelta(seconds=10)
    accept: frozenset[str] = frozenset()
    cluster: bool = False
    sentinel: str = ""
    foreign_lifetime: timedelta = FOREVER
    unknown_backoff: str = "exponential"
    """How jobs with a backoff strategy that only Node knows are retried."""
    fsync: bool = False
    """A submission returns once the server's append-only file is on disk."""
    replicas: int = 0
    """A submission returns once so many replicas have it."""
    confirm_within: timedelta = timedelta(seconds=5)
    """How long to wait for that before ``UnconfirmedError``."""

    @property
    def confirms(self) -> bool:
        """Whether submissions wait for more than the server's answer."""
        return self.fsync or self.replicas > 0

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Read a URL; what is not ours goes on to the client library."""
        parts = urlsplit(url)
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        rest = {name: value for name, value in asked.items() if name not in _OURS}
        scheme = {"valkey": "redis", "valkeys": "rediss"}.get(parts.scheme, parts.scheme)
        plain = urlunsplit((scheme, parts.netloc, parts.path, urlencode(rest), ""))
        accept = frozenset(filter(None, asked.get("accept", "").split(",")))
        if unknown := accept - ACCEPTABLE:
            known = ", ".join(sorted(ACCEPTABLE))
            raise StoreError(f"accept must name {known}, got {', '.join(sorted(unknown))}")
        prefix = asked.get("prefix", "bull")
        if not _PREFIX.fullmatch(prefix):
            raise StoreError(f"prefix must be 1 to 64 characters without ':', got {prefix!r:.60}")
        cluster = asked.get("cluster", "") in ("1", "true", "yes")
        if cluster and not _TAG.search(prefix):
            raise StoreError(
                "on a cluster the prefix must hold a hash tag, such as {bull}, so that all keys"
                f" share a slot, got {prefix!r:.60}"
            )
        if asked.get("durability", "server") not in ("server", "fsync"):
            raise StoreError(f"durability must be server or fsync, got {asked['durability']!r:.60}")
        if cluster and ("replicas" in asked or asked.get("durability") == "fsync"):
            raise StoreError("durability=fsync and replicas= cannot be asked of a cluster")
        unknown_backoff = asked.get("unknown_backoff", "exponential")
        if unknown_backoff not in UNKNOWN_BACKOFFS:
            known = ", ".join(UNKNOWN_BACKOFFS)
            raise StoreError(f"unknown_backoff must be one of {known}, got {unknown_backoff!r:.60}")
        return cls(
            url=plain,
            prefix=prefix,
            events_kept=_number(asked, "events_kept", EVENTS_KEPT),
            timeout=timedelta(seconds=_number(asked, "timeout", 10)),
            accept=accept,
            cluster=cluster,
            sentinel=asked.get("sentinel", ""),
            unknown_backoff=unknown_backoff,
            fsync=asked.get("durability") == "fsync",
            replicas=_number(asked, "replicas", 0),
            confirm_within=timedelta(seconds=_number(asked, "confirm_within", 5)),
            foreign_lifetime=timedelta(
                seconds=_number(asked, "foreign_lifetime", int(FOREVER.total_seconds()))
            ),
        )


def _number(asked: dict[str, str], name: str, default: int) -> int:
    value = asked.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= 10 and 0 < int(value) <= MOST):
        raise StoreError(f"{name} must be a whole number from 1 to a billion, got {value!r:.60}")
    return int(value)
