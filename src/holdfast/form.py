"""What a caller may ask for, what applies when it is silent, and how each field is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec

from holdfast.dependencies import breadth_fault, depth_fault, missing_fault
from holdfast.errors import Fault, ValidationError
from holdfast.job import DEFAULT_QUEUE, DedupeKey, DependencyKind, Encoding, Priority
from holdfast.payload import PayloadError, clean, encode, size_fault
from holdfast.policy import MAX_ATTEMPTS, Backoff, Limits, effective_timeout
from holdfast.profiles import STANDARD, Profile
from holdfast.timing import Moment, Span, format_timestamp, parse_duration, parse_timestamp

MAX_KEY = 256
MAX_TAGS = 64
MAX_TAG_NAME = 128
MAX_TAG_VALUE = 1024
MAX_URL = 2048
TYPE_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}", re.ASCII)
QUEUE_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller may say about a new job. Only ``type`` is required."""

    type: str
    payload: object = None
    queue: str | None = None
    priority: Priority | str | int | None = None
    delay: Span | None = None
    scheduled_at: Moment | None = None
    hold: bool = False
    timeout: Span | None = None
    lifetime: Span | None = None
    lease: Span | None = None
    max_attempts: int | None = None
    backoff: Backoff | Mapping[str, object] | None = None
    retry_timeouts: bool | None = None
    idempotency_key: str | None = None
    idempotency_window: Span | None = None
    correlation_id: str | None = None
    tags: Mapping[str, str] | None = None
    depends_on: Sequence[str] = ()
    dependency_type: DependencyKind | str | None = None
    callback_url: str | None = None
    limit_key: str | None = None
    ref: str | None = None
    """A name by which other jobs of the same batch may depend on this one."""


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What applies when a submission is silent: the handler's wishes, then the profile's."""

    profile: Profile = STANDARD
    queue: str = DEFAULT_QUEUE
    priority: Priority | None = None
    timeout: timedelta | None = None
    lifetime: timedelta | None = None
    lease: timedelta | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    retry_timeouts: bool = True
    limits: Limits = Limits()


class Parent(msgspec.Struct, frozen=True):
    """What a new job must know of one it depends on."""

    priority: int
    depth: int


class Spawner(msgspec.Struct, frozen=True):
    """The running job that submits this one, and the key that keeps it from doing so twice."""

    job_id: str
    key: str


class Form:
    """Reads one submission field by field and collects what is wrong with it."""

    def __init__(self, submission: Submission, defaults: Defaults, now: datetime) -> None:
        self._asked = submission
        self._defaults = defaults
        self._limits = defaults.limits
        self._now = now
        self._faults: list[Fault] = []

    def finish(self) -> None:
        """Raise everything that was found."""
        if self._faults:
            raise ValidationError(self._faults)

    def payload(self) -> tuple[bytes, Encoding]:
        try:
            data, encoding = encode(self._asked.payload)
        except PayloadError as error:
            self._faults.append(error.fault("payload"))
            return b"", Encoding.JSON
        self._note(size_fault(len(data), self._limits.payload_bytes))
        return data, encoding

    def name(self, field: str, value: object, rule: re.Pattern[str]) -> str:
        if isinstance(value, str) and rule.fullmatch(value):
            return value
        self._fault(
            field,
            "INVALID",
            f"must be 1 to 128 characters matching {rule.pattern}, got {value!r:.60}",
        )
        return ""

    def text(self, field: str, limit: int) -> str:
        value = getattr(self._asked, field)
        if value is None:
            return ""
        if not isinstance(value, str) or not value:
            self._fault(field, "INVALID", f"must be a non-empty string, got {value!r:.60}")
        elif len(value) > limit:
            self._fault(field, "TOO_LONG", f"must be at most {limit} characters, got {len(value)}")
        elif clean(value) != value:
            self._fault(field, "INVALID_TEXT", "must not hold NUL or unpaired surrogates")
        else:
            return value
        return ""

    def flag(self, field: str, default: bool) -> bool:
        value = getattr(self._asked, field)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._fault(field, "INVALID", f"must be true or false, got {value!r:.60}")
            return default
        return value

    def span(self, field: str, *, low: float = 0.0) -> timedelta | None:
        value = getattr(self._asked, field)
        if value is None:
            return None
        try:
            span = parse_duration(value)
        except ValueError as error:
            self._fault(field, "INVALID_DURATION", str(error))
            return None
        if span <= timedelta(0) or span.total_seconds() < low:
            self._fault(field, "OUT_OF_RANGE", f"must be above {low:g} s, got {value}")
            return None
        return span

    def timeout(self) -> timedelta:
        asked = self.span("timeout")
        most = self._limits.timeout
        if asked is not None and asked > most:
            self._fault(
                "timeout",
                "OUT_OF_RANGE",
                f"must not exceed the system's {most.total_seconds():g} s,"
                f" got {asked.total_seconds():g} s",
            )
        return effective_timeout(
            asked or self._defaults.profile.timeout, self._defaults.timeout, most
        )

    def due_at(self, lifetime: timedelta) -> datetime | None:
        asked = self._asked
        if asked.delay is not None and asked.scheduled_at is not None:
            self._fault("scheduled_at", "CONFLICT", "must not be given together with delay")
            return None
        if asked.delay is not None:
            field, moment = "delay", self._after_delay(asked.delay)
        elif asked.scheduled_at is not None:
            field, moment = "scheduled_at", self._moment(asked.scheduled_at)
        else:
            return None
        if moment is not None and moment - self._now > lifetime:
            self._fault(
                field,
                "BEYOND_LIFETIME",
                f"must fall within the job's lifetime of {lifetime.total_seconds():g} s,"
                f" got {format_timestamp(moment)}",
            )
        return moment

    def _after_delay(self, delay: Span) -> datetime | None:
        try:
            span = parse_duration(delay)
            return self._now + span if span else None
        except ValueError as error:
            self._fault("delay", "INVALID_DURATION", str(error))
        except OverflowError:
            self._fault("delay", "OUT_OF_RANGE", f"is too long, got {delay}")
        return None

    def _moment(self, value: Moment) -> datetime | None:
        try:
            return parse_timestamp(value)
        except ValueError as error:
            self._fault("scheduled_at", "INVALID_TIMESTAMP", str(error))
        return None

    def max_attempts(self) -> int:
        asked = self._asked.max_attempts
        if asked is None:
            return self._defaults.max_attempts or self._defaults.profile.max_attempts
        if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= MAX_ATTEMPTS:
            self._fault(
                "max_attempts",
                "OUT_OF_RANGE",
                f"must be between 1 and {MAX_ATTEMPTS}, got {asked!r:.60}",
            )
            return 1
        return asked

    def backoff(self) -> Backoff:
        asked = self._asked.backoff
        if asked is None:
            return self._defaults.backoff or self._defaults.profile.backoff
        try:
            backoff = asked if isinstance(asked, Backoff) else _read_backoff(asked)
        except ValueError as error:
            self._fault("backoff", "INVALID", str(error))
            return Backoff()
        self._faults.extend(backoff.faults())
        return backoff

    def priority(self) -> int:
        asked = self._asked.priority
        if asked is None:
            own = self._defaults.priority
            return int(self._defaults.profile.priority if own is None else own)
        if isinstance(asked, str) and asked in Priority.__members__:
            return int(Priority[asked])
        if isinstance(asked, int) and not isinstance(asked, bool) and asked in set(Priority):
            return int(asked)
        levels = ", ".join(f"{p.name} ({p.value})" for p in Priority)
        self._fault("priority", "INVALID", f"must be one of {levels}, got {asked!r:.60}")
        return int(Priority.NORMAL)

    def tags(self) -> Mapping[str, str]:
        asked = self._asked.tags
        if asked is None:
            return {}
        if not isinstance(asked, Mapping) or len(asked) > MAX_TAGS:
            self._fault("tags", "INVALID", f"must be a map of at most {MAX_TAGS} strings")
            return {}
        for name, value in asked.items():
            self._check_tag(name, value)
        return dict(asked)

    def _check_tag(self, name: object, value: object) -> None:
        field = f"tags.{name!s:.60}"
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_TAG_NAME:
            self._fault(field, "INVALID", f"must have a name of 1 to {MAX_TAG_NAME} characters")
        elif not isinstance(value, str) or len(value) > MAX_TAG_VALUE:
            self._fault(field, "INVALID", f"must be a string of at most {MAX_TAG_VALUE} characters")
        elif clean(name) != name or clean(value) != value:
            self._fault(field, "INVALID_TEXT", "must not hold NUL or unpaired surrogates")

    def url(self) -> str:
        value = self.text("callback_url", MAX_URL)
        if value and not _is_web_address(value):
            self._fault(
                "callback_url",
                "INVALID",
                f"must be an http or https address without credentials, got {value!r:.60}",
            )
        return value

    def dedupe(self, payload: bytes, spawner: Spawner | None) -> DedupeKey | None:
        key = self.text("idempotency_key", MAX_KEY)
        window = self.span("idempotency_window") or self._limits.idempotency_window
        if spawner is not None:
            return DedupeKey(f"spawn:{spawner.job_id}", spawner.key, "", None)
        if not key:
            return None
        digest = hashlib.blake2b(payload, digest_size=16).hexdigest()
        return DedupeKey(str(self._asked.type), key, digest, self._now + window)

    def dependency_kind(self) -> DependencyKind:
        asked = self._asked.dependency_type
        if asked is None:
            return DependencyKind.AFTER
        allowed = [kind for kind in DependencyKind if kind is not DependencyKind.FAN_OUT]
        if asked not in allowed:
            self._fault(
                "dependency_type",
                "INVALID",
                f"must be one of {', '.join(allowed)}, got {asked!r:.60}",
            )
            return DependencyKind.AFTER
        return DependencyKind(asked)

    def dependencies(self, parents: Mapping[str, Parent]) -> tuple[tuple[str, ...], int, list[int]]:
        """Return the ids waited for, the job's depth, and the priorities it may inherit."""
        asked = self._asked.depends_on
        names = tuple(dict.fromkeys(named_jobs(asked)))
        if len(named_jobs(asked)) != len(asked):
            self._fault("depends_on", "INVALID", "must be a list of job ids")
        self._note(breadth_fault("depends_on", len(names), self._limits.dependencies))
        found = [parents[name] for name in names if name in parents]
        if len(found) < len(names):
            missing = [name for name in names if name not in parents]
            self._faults.append(missing_fault("depends_on", missing))
        depth = 1 + max((parent.depth for parent in found), default=-1)
        self._note(depth_fault("depends_on", depth, self._limits.depth))
        return names, depth, [parent.priority for parent in found]

    def _fault(self, field: str, code: str, message: str) -> None:
        self._faults.append(Fault(field, code, message))

    def _note(self, fault: Fault | None) -> None:
        if fault is not None:
            self._faults.append(fault)


def _read_backoff(fields: object) -> Backoff:
    if not isinstance(fields, Mapping):
        raise ValueError(f"must be an object, got {fields!r:.60}")
    unknown = set(fields) - set(Backoff.__struct_fields__)
    if unknown:
        raise ValueError(f"has unknown fields: {', '.join(sorted(map(str, unknown)))}")
    values = dict(fields)
    for name in ("initial_delay", "max_delay"):
        if name in values:
            values[name] = parse_duration(values[name])
    try:
        return msgspec.convert(values, Backoff)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False


def named_jobs(depends_on: object) -> tuple[str, ...]:
    """Return the job names in what was given as dependencies."""
    if isinstance(depends_on, str) or not isinstance(depends_on, Sequence):
        return ()
    return tuple(name for name in depends_on if isinstance(name, str))
