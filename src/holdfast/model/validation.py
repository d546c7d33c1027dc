"""Checks a submission field by field and makes the job it requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import compress
from operator import is_not

import msgspec
from msgspec.structs import asdict, astuple, replace

from holdfast.errors import Fault, ValidationError
from holdfast.model.addresses import is_web_address
from holdfast.model.deduplication import read_deduplication
from holdfast.model.dependencies import (
    breadth_fault,
    depth_fault,
    inherited_priority,
    missing_fault,
)
from holdfast.model.job import (
    SELECTABLE_KINDS,
    DedupeKey,
    DependencyKind,
    Encoding,
    Extra,
    Job,
    Priority,
    extra_document,
    read_extra,
)
from holdfast.model.payload import PayloadError, clean, encode, payload_digest
from holdfast.model.policy import (
    MAX_ATTEMPTS,
    Backoff,
    BackoffKind,
    bullmq_faults,
    effective_timeout,
    timeout_fault,
)
from holdfast.model.profiles import BULLMQ
from holdfast.model.removal import read_removal, removal_faults
from holdfast.model.submission import (
    Defaults,
    Parent,
    Spawner,
    Submission,
    default_job,
    is_list,
    is_mapping,
    named_jobs,
)
from holdfast.model.times import (
    Moment,
    Span,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    shown,
)

MAX_KEY = 256
MAX_TAGS = 64
MAX_TAG_NAME = 128
MAX_TAG_VALUE = 1024
MAX_HEADERS = 8192
"""Bytes of all names and values together."""
MAX_URL = 2048
SHORTEST_LEASE = timedelta(milliseconds=100)


class SubmissionReader:
    """Reads one submission field by field and collects its faults.

    The method for a field has its name and is called only when the field was given.
    """

    def __init__(
        self,
        submission: Submission,
        defaults: Defaults,
        now: datetime,
        parents: Mapping[str, Parent],
    ) -> None:
        self._submission = submission
        self._defaults = defaults
        self._now = now
        self._parents = parents
        self._default = default_job(defaults)
        self._faults = list(submission.faults)
        self._payload = self._default.payload
        self._values: dict[str, object] = {}
        self._extra: dict[str, object] = {}
        if defaults.version != 1:
            self._extra["version"] = defaults.version
        self._lifetime = self._default.lifetime
        self._priority = self._default.priority
        self._due_at: datetime | None = None
        self._dedupe: DedupeKey | None = None

    def job(self, job_id: str, spawner: Spawner | None) -> Job:
        """Return the new job; ValidationError lists every fault."""
        values = astuple(self._submission)
        given = map(is_not, values, _UNSET)
        for field, value in compress(zip(_FIELDS, values, strict=False), given):
            _READERS[field](self, field, value)
        if self._due_at is not None:
            self._check_due(self._due_at)
        if spawner is not None:
            self._spawned(spawner)
        self._check_fit()
        self._faults += self._defaults.name_faults(self._values)
        if self._extra:
            self._values["extra"] = extra_document(msgspec.convert(self._extra, Extra))
        if self._faults:
            raise ValidationError(self._faults)
        return replace(
            self._default,
            id=job_id,
            created_at=self._now,
            updated_at=self._now,
            expires_at=self._now + self._lifetime,
            due_at=self._due_at,
            priority=self._priority,
            dedupe=self._dedupe,
            **self._values,
        )

    def _spawned(self, spawner: Spawner) -> None:
        self._values["spawned_by"] = spawner.job_id
        self._extra = {"headers": read_extra(spawner.extra).headers, **self._extra}
        if "depends_on" not in self._values:
            self._values["dependency_kind"] = DependencyKind.FAN_OUT

    def _check_fit(self) -> None:
        if all(fault.field != "payload" for fault in self._faults):
            encoding = Encoding(str(self._values.get("encoding", Encoding.JSON)))
            self._add(self._defaults.fit_fault(self._payload, encoding))

    def payload(self, field: str, value: object) -> None:
        limit = self._defaults.limits.payload_bytes
        try:
            self._payload, self._values["encoding"] = encode(value, limit)
        except PayloadError as error:
            self._faults.append(error.fault(field))
        else:
            self._values[field] = self._payload

    def type(self, field: str, value: object) -> None:
        if not self._faults or all(fault.field != field for fault in self._faults):
            self._name(field, value, self._defaults.type_rule)

    def queue(self, field: str, value: object) -> None:
        self._name(field, value, self._defaults.queue_rule)

    def _name(self, field: str, value: object, rule: re.Pattern[str]) -> None:
        if isinstance(value, str) and rule.fullmatch(value):
            self._values[field] = value
        else:
            self._fault(
                field,
                "INVALID",
                f"must match {rule.pattern}, got {shown(value)}",
            )

    def priority(self, field: str, value: object) -> None:
        if isinstance(value, str) and value in Priority.__members__:
            self._priority = int(Priority[value])
        elif isinstance(value, int) and not isinstance(value, bool) and value in _PRIORITIES:
            self._priority = int(value)
        else:
            levels = ", ".join(f"{level.name} ({level.value})" for level in Priority)
            self._fault(field, "INVALID", f"must be one of {levels}, got {shown(value)}")

    def delay(self, field: str, value: Span) -> None:
        span = self._span(field, value)
        if span:
            self._due_at = self._now + span

    def scheduled_at(self, field: str, value: Moment) -> None:
        if self._submission.delay is not None:
            self._fault(field, "CONFLICT", "must not be given together with delay")
            return
        try:
            self._due_at = self._extra[field] = parse_timestamp(value)
        except ValueError as error:
            self._fault(field, "INVALID_TIMESTAMP", str(error))

    def _check_due(self, due_at: datetime) -> None:
        if due_at - self._now > self._lifetime:
            self._fault(
                "scheduled_at" if self._submission.delay is None else "delay",
                "BEYOND_LIFETIME",
                f"must fall within the job's lifetime of {self._lifetime.total_seconds():g} s,"
                f" got {format_timestamp(due_at)}",
            )

    def hold(self, field: str, value: object) -> None:
        self._flag(field, value, "held")

    def retry_timeouts(self, field: str, value: object) -> None:
        self._flag(field, value, field)

    def remove_on_complete(self, field: str, value: object) -> None:
        self._values[field], faults = read_removal(field, value)
        self._faults += faults or removal_faults(field, supported=self._defaults.removes_ended)

    remove_on_fail = remove_on_complete
    retry_crashes = retry_timeouts

    def deduplication(self, field: str, value: object) -> None:
        given, terms = self._submission, self._defaults
        self._values[field], faults = read_deduplication(value, given, terms=terms)
        self._faults += faults

    def _flag(self, field: str, value: object, name: str) -> None:
        if isinstance(value, bool):
            self._values[name] = value
        elif value is not None:
            self._fault(field, "INVALID", f"must be true or false, got {shown(value)}")

    def timeout(self, field: str, value: Span) -> None:
        span = self._positive(field, value)
        most = self._defaults.limits.timeout
        self._add(timeout_fault(span, most) if span else None)
        self._values[field] = effective_timeout(span, self._defaults.timeout, most)

    def lifetime(self, field: str, value: Span) -> None:
        self._lifetime = self._positive(field, value) or self._lifetime
        self._values[field] = self._lifetime

    def lease(self, field: str, value: Span) -> None:
        span = self._span(field, value)
        if span is not None and span < SHORTEST_LEASE:
            self._fault(field, "OUT_OF_RANGE", f"must be at least 0.1 s, got {shown(span)}")
        self._values["lease_ttl"] = span

    def _span(self, field: str, value: object) -> timedelta | None:
        try:
            return parse_duration(value)
        except ValueError as error:
            self._fault(field, "INVALID_DURATION", str(error))
            return None

    def _positive(self, field: str, value: Span) -> timedelta | None:
        span = self._span(field, value)
        if span == timedelta(0):
            self._fault(field, "OUT_OF_RANGE", "must be longer than 0 s")
        return span

    def max_attempts(self, field: str, value: object) -> None:
        if type(value) is int and 1 <= value <= MAX_ATTEMPTS:
            self._values[field] = value
        else:
            self._fault(
                field, "OUT_OF_RANGE", f"must be between 1 and {MAX_ATTEMPTS}, got {shown(value)}"
            )

    def backoff(self, field: str, value: object) -> None:
        if isinstance(value, Backoff):
            value = asdict(value)
        if not is_mapping(value):
            self._fault(field, "INVALID", f"must be an object, got {shown(value)}")
            return
        before = len(self._faults)
        values = {name: self._backoff_value(name, value[name]) for name in value}
        if len(self._faults) > before:
            return
        try:
            backoff = msgspec.convert(values, Backoff)
        except msgspec.ValidationError as error:
            self._fault(field, "INVALID", f"must be a backoff: {error}")
        else:
            self._faults.extend(backoff.faults())
            if self._default.profile == BULLMQ.name:
                self._faults.extend(bullmq_faults(backoff))
            self._values[field] = backoff

    def _backoff_value(self, name: object, value: object) -> object:
        if name not in Backoff.__struct_fields__:
            self._fault(_part("backoff", name), "UNKNOWN_FIELD", "is not a field of a backoff")
        elif name == "strategy" and value not in list(BackoffKind):
            rule = f"must be one of {', '.join(BackoffKind)}, got {shown(value)}"
            self._fault("backoff.strategy", "INVALID", rule)
        elif name in ("initial_delay", "max_delay"):
            return self._span(f"backoff.{name}", value)
        return value

    def text(self, field: str, value: object, limit: int = MAX_KEY) -> None:
        if not isinstance(value, str) or not value:
            self._fault(field, "INVALID", f"must be a non-empty string, got {shown(value)}")
        elif len(value) > limit:
            self._fault(field, "TOO_LONG", f"must be at most {limit} characters, got {len(value)}")
        elif clean(value) != value:
            self._fault(field, "INVALID_TEXT", "must not hold NUL or unpaired surrogates")
        else:
            self._values[field] = value

    def ref(self, field: str, value: object) -> None:
        self.text(field, value)
        self._values.pop(field, None)

    def callback_url(self, field: str, value: str) -> None:
        self.text(field, value, MAX_URL)
        if field in self._values and not is_web_address(value):
            self._fault(
                field,
                "INVALID",
                f"must be an http or https address without credentials, got {shown(value)}",
            )

    def idempotency_key(self, field: str, value: str) -> None:
        self.text(field, value)
        if self._values.pop(field, None):
            encoding = str(self._values.get("encoding", self._default.encoding))
            digest = payload_digest(self._payload, Encoding(encoding))
            expires_at = self._now + self._defaults.limits.idempotency_window
            self._dedupe = DedupeKey(str(self._submission.type), value, digest, expires_at)

    def idempotency_window(self, field: str, value: Span) -> None:
        span = self._positive(field, value)
        if span and self._dedupe:
            self._dedupe = replace(self._dedupe, expires_at=self._now + span)

    def tags(self, field: str, value: object) -> None:
        if not is_mapping(value) or len(value) > MAX_TAGS:
            self._fault(field, "INVALID", f"must be a map of at most {MAX_TAGS} strings")
            return
        for name in value:
            self._check_tag(name, value[name])
        self._values[field] = dict(value)

    def _check_tag(self, name: object, value: object) -> None:
        field = _part("tags", name)
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_TAG_NAME:
            self._fault(field, "INVALID", f"must have a name of 1 to {MAX_TAG_NAME} characters")
        elif not isinstance(value, str) or len(value) > MAX_TAG_VALUE:
            self._fault(field, "INVALID", f"must be a string of at most {MAX_TAG_VALUE} characters")
        elif clean(name) != name or clean(value) != value:
            self._fault(field, "INVALID_TEXT", "must not hold NUL or unpaired surrogates")

    def headers(self, field: str, value: object) -> None:
        if not is_mapping(value) or not all(
            isinstance(text, str) for pair in value.items() for text in pair
        ):
            self._fault(field, "INVALID", f"must be a map of strings, got {shown(value)}")
            return
        texts = [str(text) for pair in value.items() for text in pair]
        if any(clean(text) != text for text in texts):
            self._fault(field, "INVALID_TEXT", "must not hold NUL or unpaired surrogates")
        elif (size := sum(len(text.encode()) for text in texts)) > MAX_HEADERS:
            message = f"must hold at most {MAX_HEADERS} bytes of names and values, got {size}"
            self._fault(field, "TOO_LARGE", message)
        else:
            self._extra[field] = dict(value)

    def depends_on(self, field: str, value: object) -> None:
        if value is None:
            return
        names = tuple(dict.fromkeys(named_jobs(value)))
        if not is_list(value) or not all(isinstance(name, str) for name in value):
            self._fault(field, "INVALID", f"must be a list of job ids, got {shown(value)}")
        self._add(breadth_fault(field, len(names), self._defaults.limits.dependencies))
        missing = [name for name in names if name not in self._parents]
        if missing:
            self._faults.append(missing_fault(field, missing))
        found = [self._parents[name] for name in names if name in self._parents]
        depth = 1 + max((parent.depth for parent in found), default=-1)
        self._add(depth_fault(field, depth, self._defaults.limits.depth))
        self._priority = inherited_priority(self._priority, (p.priority for p in found))
        if names:
            self._values |= {"depends_on": names, "depth": depth}

    def dependency_type(self, field: str, value: object) -> None:
        allowed = SELECTABLE_KINDS
        if isinstance(value, str) and value in allowed:
            self._values["dependency_kind"] = DependencyKind(value)
        else:
            self._fault(
                field, "INVALID", f"must be one of {', '.join(allowed)}, got {shown(value)}"
            )

    def _fault(self, field: str, code: str, message: str) -> None:
        self._faults.append(Fault(field, code, message))

    def _add(self, fault: Fault | None) -> None:
        if fault is not None:
            self._faults.append(fault)


_FIELDS = Submission.__struct_fields__[:-1]
_UNSET = (msgspec.NODEFAULT, *Submission.__struct_defaults__)
_READERS = {field: getattr(SubmissionReader, field, SubmissionReader.text) for field in _FIELDS}
_PRIORITIES = frozenset(int(level) for level in Priority)


def _part(field: str, name: object) -> str:
    return f"{field}.{clean(name, 60) if isinstance(name, str) else shown(name)}"
