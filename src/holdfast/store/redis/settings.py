"""The settings in a Redis store's URL, and the names of its keys."""

from __future__ import annotations

import base64
import re
from datetime import timedelta
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from holdfast.errors import StoreError
from holdfast.model.profiles import BULLMQ
from holdfast.model.removal import Removal, read_removal
from holdfast.store.contract import EVENTS_KEPT

RESERVED = frozenset(
    {
        *("active", "wait", "waiting-children", "paused", "id", "delayed", "prioritized"),
        *("stalled-check", "completed", "failed", "stalled", "repeat", "limiter", "meta"),
        *("events", "pc", "marker", "de", "dn", "metrics", "priority", "delay", "hf", ""),
    }
)
"""Ids under which a job would overwrite one of its queue's own keys."""


OWN_KEYS = "hf"
"""A queue of this name would share its keys with those that all queues share."""


class RedisKeys:
    """The keys of one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.jobs = f"{prefix}:hf:jobs"

    def shared(self, name: str) -> str:
        """Return a key that all queues share."""
        return f"{self.prefix}:hf:{name}"

    def queue(self, queue: str, name: str) -> str:
        """Return a key of one queue."""
        return f"{self.prefix}:{queue}:{name}"

    def client_name(self, queue: str, worker: str = "") -> str:
        """Return the connection name by which BullMQ's ``getWorkers`` finds a worker."""
        name = f"{self.prefix}:{base64.b64encode(queue.encode()).decode()}"
        return f"{name}:w:{_UNNAMEABLE.sub('_', worker)}" if worker else name


def is_usable(job_id: str) -> bool:
    """Whether a job of this id can be written: not reserved, no separator, not v4's marker."""
    return job_id not in RESERVED and ":" not in job_id and job_id != "0"


def dedupe_field(scope: str, key: str) -> str:
    """Return the field that stands for a deduplication key."""
    return f"{scope}\n{key}"


def tag_index(name: str, value: str) -> str:
    """Return the name of the index of jobs with a tag."""
    return f"g:{name}\n{value}"


def correlation_index(correlation_id: str) -> str:
    """Return the name of the index of jobs with a correlation id."""
    return f"r:{correlation_id}"


_UNNAMEABLE = re.compile(r"[^!-~]")
"""What the server does not accept in the name of a connection."""
_PREFIX = re.compile(r"[^\s\x00]{1,64}")
_TAG = re.compile(r"\{[^{}]+\}")
_OPTIONS = frozenset(
    {
        *("prefix", "events_kept", "timeout", "accept", "cluster", "sentinel", "foreign_lifetime"),
        *("durability", "replicas", "confirm_within", "unknown_backoff"),
        *("lock_duration", "stalled_interval", "max_stalled_count", "stream_length", "metrics"),
        *("remove_on_complete", "remove_on_fail", "max_started_attempts", "limiter"),
    }
)
FOREVER = timedelta(days=36_500)
"""The lifetime of jobs that have none."""
ACCEPTABLE = frozenset({"eviction", "unknown-version"})
"""Weaker promises that a user may name in ``accept=``."""


class ForeignTerms(NamedTuple):
    """What a job of a BullMQ client does not say: its worker decides."""

    unknown_backoff: str = "stall"
    lock_duration: timedelta = BULLMQ.lease


UNKNOWN_BACKOFFS = ("stall", "exponential", "fixed", "none")
"""What may replace a backoff strategy that only Node knows."""
STALLED_INTERVAL, MAX_STALLED_COUNT = timedelta(seconds=30), 1
"""The defaults of BullMQ."""
MAX_NUMBER = 10**9
MOST_METRICS = 10**6
"""Minutes; a pause of the queue writes a number for each of them at once."""


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a server, and which promises are required."""

    url: str
    prefix: str = "bull"
    events_kept: int = EVENTS_KEPT
    timeout: timedelta = timedelta(seconds=10)
    accept: frozenset[str] = frozenset()
    cluster: bool = False
    sentinel: str = ""
    foreign_lifetime: timedelta = FOREVER
    unknown_backoff: str = "stall"
    """How jobs with a backoff strategy that only Node knows are retried."""
    lock_duration: timedelta = BULLMQ.lease
    """For how long a worker here locks a job of BullMQ, and how long each renewal lasts."""
    stalled_interval: timedelta = STALLED_INTERVAL
    """Time between two checks for stalled jobs of BullMQ, which are found at the second."""
    max_stalled_count: int = MAX_STALLED_COUNT
    """How often a job of BullMQ may stall before it fails."""
    max_started_attempts: int = 0
    """How often a job of BullMQ may start, with or without an attempt used; 0: any number."""
    limiter: tuple[int, int] | None = None
    """BullMQ's limiter of the workers here: jobs of one queue, in so many milliseconds."""
    stream_length: int = 0
    """About how many events a queue's BullMQ stream keeps; 0: as the queue's own setting says."""
    metrics: int = 0
    """For how many minutes BullMQ's metrics of ended jobs are kept; 0: none are collected."""
    remove_on_complete: Removal | None = None
    """How this process keeps completed jobs of BullMQ clients that do not say it themselves."""
    remove_on_fail: Removal | None = None
    """The same for failed ones."""
    fsync: bool = False
    """A submission returns once the server's append-only file is on disk."""
    replicas: int = 0
    """A submission returns once so many replicas have it."""
    confirm_within: timedelta = timedelta(seconds=5)
    """How long to wait for that before ``UnconfirmedError``."""

    @property
    def foreign(self) -> ForeignTerms:
        """How jobs of BullMQ clients are read."""
        return ForeignTerms(self.unknown_backoff, self.lock_duration)

    @property
    def confirms(self) -> bool:
        """Whether submissions wait for more than the server's answer."""
        return self.fsync or self.replicas > 0

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Read a URL; options of the client library stay in ``url``."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        rest = {name: value for name, value in options.items() if name not in _OPTIONS}
        scheme = {"valkey": "redis", "valkeys": "rediss"}.get(parts.scheme, parts.scheme)
        cluster = options.get("cluster", "") in ("1", "true", "yes")
        durability = _choice(options, "durability", ("server", "fsync"))
        if cluster and ("replicas" in options or durability == "fsync"):
            raise StoreError(
                "durability=fsync and replicas= do not work on a cluster: leave them out"
            )
        return cls(
            url=urlunsplit((scheme, parts.netloc, parts.path, urlencode(rest), "")),
            prefix=_prefix(options, cluster=cluster),
            events_kept=_number(options, "events_kept", EVENTS_KEPT),
            timeout=timedelta(seconds=_number(options, "timeout", 10)),
            accept=_accept(options),
            cluster=cluster,
            sentinel=options.get("sentinel", ""),
            unknown_backoff=_choice(options, "unknown_backoff", UNKNOWN_BACKOFFS),
            lock_duration=timedelta(seconds=_number(options, "lock_duration", 30, most=3600)),
            stalled_interval=timedelta(seconds=_number(options, "stalled_interval", 30)),
            max_stalled_count=_number(options, "max_stalled_count", 1, least=0),
            max_started_attempts=_number(options, "max_started_attempts", 0),
            limiter=_limiter(options),
            stream_length=_number(options, "stream_length", 0),
            metrics=_number(options, "metrics", 0, most=MOST_METRICS),
            remove_on_complete=_removal(options, "remove_on_complete"),
            remove_on_fail=_removal(options, "remove_on_fail"),
            fsync=durability == "fsync",
            replicas=_number(options, "replicas", 0),
            confirm_within=timedelta(seconds=_number(options, "confirm_within", 5)),
            foreign_lifetime=timedelta(
                seconds=_number(options, "foreign_lifetime", int(FOREVER.total_seconds()))
            ),
        )

    @property
    def _stalls(self) -> str:
        """The interval in milliseconds and the count; empty for BullMQ's defaults."""
        given = self.stalled_interval, self.max_stalled_count
        if given == (STALLED_INTERVAL, MAX_STALLED_COUNT):
            return ""
        return f"{self.stalled_interval // timedelta(milliseconds=1)}:{self.max_stalled_count}"

    def for_scripts(self) -> str:
        """Return what scripts read from ``ARGV[6]``, as JSON; what is absent has its default."""
        found: dict[str, object] = {
            "any_version": "unknown-version" in self.accept,
            "stream_length": self.stream_length,
            "metrics": self.metrics,
            "max_started_attempts": self.max_started_attempts,
            "stalls": self._stalls,
            "limiter": self.limiter,
        }
        keep = {"removeOnComplete": self.remove_on_complete, "removeOnFail": self.remove_on_fail}
        given = {name: value for name, value in found.items() if value}
        given |= {name: value for name, value in keep.items() if value is not None}
        return msgspec.json.encode(given).decode()


def _limiter(options: dict[str, str]) -> tuple[int, int] | None:
    """Read a number of jobs and a time: ``100/1000`` are 100 jobs in 1,000 milliseconds."""
    if "limiter" not in options:
        return None
    most, slash, period = options["limiter"].partition("/")
    parts = {"limiter": most, "limiter period": period}
    if not slash:
        raise StoreError(
            f"limiter must be jobs/milliseconds such as 100/1000, got {options['limiter']!r:.60}"
        )
    return _number(parts, "limiter", 0), _number(parts, "limiter period", 0)


def _removal(options: dict[str, str], name: str) -> Removal | None:
    """Read true, false, a count, or an object of age, count and limit."""
    text = options.get(name)
    if text is None:
        return None
    try:
        value, faults = read_removal(name, msgspec.json.decode(text))
    except msgspec.DecodeError:
        value, faults = read_removal(name, text)
    if faults:
        raise StoreError(str(faults[0]))
    return value


def _accept(options: dict[str, str]) -> frozenset[str]:
    accept = frozenset(filter(None, options.get("accept", "").split(",")))
    if unknown := accept - ACCEPTABLE:
        known = ", ".join(sorted(ACCEPTABLE))
        raise StoreError(f"accept must name {known}, got {', '.join(sorted(unknown))}")
    return accept


def _prefix(options: dict[str, str], *, cluster: bool) -> str:
    prefix = options.get("prefix", "bull")
    if not _PREFIX.fullmatch(prefix):
        raise StoreError(f"prefix must be 1 to 64 characters without spaces, got {prefix!r:.60}")
    if cluster and not _TAG.search(prefix):
        raise StoreError(
            "prefix must have a hash tag on a cluster, such as {bull}, so that all keys share a"
            f" slot, got {prefix!r:.60}"
        )
    return prefix


def _choice(options: dict[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return one of several words, the first when the URL has none."""
    value = options.get(name, choices[0])
    if value not in choices:
        raise StoreError(f"{name} must be one of {', '.join(choices)}, got {value!r:.60}")
    return value


def _number(
    options: dict[str, str], name: str, default: int, *, least: int = 1, most: int = MAX_NUMBER
) -> int:
    value = options.get(name)
    if value is None:
        return default
    is_short = value.isascii() and value.isdigit() and len(value) <= 10
    if not (is_short and least <= int(value) <= most):
        raise StoreError(
            f"{name} must be a whole number from {least} to {most:,}, got {value!r:.60}"
        )
    return int(value)
