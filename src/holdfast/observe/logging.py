"""Log lines for a terminal, or JSON lines for a program.

The only module that calls a logger. Every line about a job has its id, type and attempt, also
the lines that handlers write with ``logging``. Set up once with ``configure``, or attach handlers
of your own to the logger ``holdfast``: records carry the event's name and fields.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from holdfast.observe.current import CURRENT_JOB
from holdfast.observe.redaction import Redaction, redacted

LOGGER = logging.getLogger("holdfast")
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_LEVEL_OF = {
    "job.started": logging.DEBUG,
    "process.started": logging.DEBUG,
    "child.started": logging.DEBUG,
    "maintenance.leading": logging.DEBUG,
    "job.failed": logging.WARNING,
    "http.failed": logging.ERROR,
    "dashboard.failed": logging.ERROR,
    "worker.failed": logging.ERROR,
    "audit.failed": logging.ERROR,
    "http.refused": logging.WARNING,
    "job.dead": logging.WARNING,
    "job.mismatched": logging.WARNING,
    "job.lease_lost": logging.WARNING,
    "job.stale": logging.WARNING,
    "job.afterwards": logging.WARNING,
    "job.unresponsive": logging.WARNING,
    "job.reaped": logging.WARNING,
    "loop.blocked": logging.WARNING,
    "loop.error": logging.ERROR,
    "worker.no_tasks": logging.WARNING,
    "worker.other_queue": logging.WARNING,
    "store.new": logging.WARNING,
    "backoff.failed": logging.WARNING,
    "backoff.unknown": logging.ERROR,
    "thread.leaked": logging.WARNING,
    "process.died": logging.WARNING,
    "child.died": logging.WARNING,
    "child.broken": logging.WARNING,
    "heartbeat.missed": logging.WARNING,
    "store.unavailable": logging.WARNING,
    "store.not_notified": logging.WARNING,
    "maintenance.failed": logging.ERROR,
    "results.lost": logging.WARNING,
    "middleware.failed": logging.WARNING,
    "item.quarantined": logging.WARNING,
    "store.clock_set": logging.WARNING,
    "store.unsafe": logging.ERROR,
}
_MESSAGES = {
    "audit.failed": "refused calls could not be written to the audit log",
    "backoff.failed": "the task's backoff function failed, exponential delay instead",
    "http.refused": "connections or headers refused",
    "backoff.unknown": "no function for the job's backoff strategy, it is left until it stalls",
    "job.afterwards": "job was completed by its transaction, later outcome dropped",
    "job.dead": "job is in DEAD_LETTER, no attempt left",
    "job.lease_lost": "job lost its lease",
    "job.mismatched": "job does not fit this version of its task, waits for another worker",
    "job.reaped": "job reclaimed, its lease expired",
    "job.released": "job given back",
    "job.waiting": "job waits for the jobs it spawned",
    "job.stale": "job outcome came too late, dropped",
    "job.unresponsive": "job did not stop, abandoned",
    "worker.serves": "worker serves",
    "worker.no_tasks": "the app has no task, no job will run",
    "worker.other_queue": "another queue has ready jobs of these tasks, not served here",
    "worker.stopping": "stopping, waits for running jobs",
    "store.new": "creates a new SQLite file: jobs in another file are not seen",
    "loop.blocked": "job blocks the event loop, nothing else runs on it",
    "loop.error": "a background task or callback failed",
    "child.started": "child process started",
    "child.died": "child process died",
    "child.broken": "child process sent an invalid message, replaced",
    "process.started": "worker process started",
    "process.died": "worker process died",
    "heartbeat.missed": "heartbeat missed",
    "item.quarantined": "item set aside, the others go on",
    "maintenance.failed": "maintenance service failed, trying again",
    "maintenance.recovered": "maintenance service works again",
    "store.unavailable": "store unavailable, retrying",
    "store.available": "store available again",
    "store.clock_set": "the store's clock was set, leases and waits are corrected",
    "store.safe": "the store's settings are safe again",
    "store.unsafe": "the store's settings were changed: accepted jobs can be lost",
    "store.not_notified": "no notifications of new jobs, polling instead",
    "maintenance.leading": "this worker leads maintenance",
    "thread.leaked": "thread did not stop, abandoned",
}
_JOB_FIELDS = ("job_id", "type", "attempt", "seconds")
_TRACE = "stack_trace"

configured: list[str] = []
"""Level and style that ``configure`` received; empty before."""


class LogObserver:
    """Writes every event, with secrets masked, to the logger ``holdfast``."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        self._redaction = redaction or Redaction.from_environment()

    def emit(self, event: str, **fields: object) -> None:
        level = _LEVEL_OF.get(event, logging.INFO)
        if LOGGER.isEnabledFor(level):
            masked = self._redaction.fields(fields)
            text = EventText(event, masked)
            LOGGER.log(level, "%s", text, extra={"event": event, "fields": masked})


class EventText:
    """An event as other programs' handlers show it: made only when one of them asks for it."""

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self._event = event
        self._fields = fields

    def __str__(self) -> str:
        return _line_of(_MESSAGES.get(self._event, self._event.replace(".", " ")), self._fields)


def configure(level: str = "info", style: str = "text", stream: TextIO | None = None) -> None:
    """Make the logger ``holdfast`` write lines of one style to a stream, by default stderr.

    The root logger writes there, too, from INFO on, unless the program has set it up itself.
    """
    stream = stream or sys.stderr
    configured[:] = [level, style]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        JsonLines() if style == "json" else LogWriter(colours=_takes_colours(stream))
    )
    LOGGER.handlers = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    root = logging.getLogger()
    if not root.handlers or all(getattr(h, "is_holdfast", False) for h in root.handlers):
        handler.is_holdfast = True  # type: ignore[attr-defined]  # a later call replaces it
        root.handlers = [handler]
        root.setLevel(max(logging.INFO, LOGGER.level))


def from_environment() -> LogObserver:
    """Return an observer set up by $HOLDFAST_LOG_LEVEL and $HOLDFAST_LOG_FORMAT."""
    configure(
        os.environ.get("HOLDFAST_LOG_LEVEL", "info"), os.environ.get("HOLDFAST_LOG_FORMAT", "text")
    )
    return LogObserver()


class LogWriter(logging.Formatter):
    """``12:30:01 INFO    job completed  3f2a91c0 email.send attempt 1 in 0.012 s``."""

    def __init__(self, *, colours: bool = False) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _event_of(record)
        when = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        message = _MESSAGES.get(event, event.replace(".", " ")) if _is_event(record) else event
        return _line_of(f"{when} {self._coloured(record)} {message}", fields)

    def _coloured(self, record: logging.LogRecord) -> str:
        name = f"{record.levelname:7}"
        colour = {logging.WARNING: 33, logging.ERROR: 31}.get(record.levelno)
        return f"\x1b[{colour}m{name}\x1b[0m" if self._colours and colour else name


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, event, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _event_of(record)
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "event": event,
        }
        line |= {name: _value(value) for name, value in fields.items() if value is not None}
        if fields.get(_TRACE):
            line[_TRACE] = fields[_TRACE]
        return json.dumps(line)


def _line_of(line: str, fields: Mapping[str, object]) -> str:
    """Return a line with the details of an event behind it, and a stack trace below it."""
    details = " ".join([*_job_details(fields), *_other_details(fields)])
    frames = str(fields.get(_TRACE) or "").splitlines()
    trace = "".join(f"\n    {plain(frame)}" for frame in frames)
    return f"{line}  {details}{trace}" if details else f"{line}{trace}"


def _event_of(record: logging.LogRecord) -> tuple[str, Mapping[str, object]]:
    """Return the event and fields of a record; of other loggers' records, the message."""
    if _is_event(record):
        return str(getattr(record, "event", "")), getattr(record, "fields", {})
    fields: dict[str, object] = {}
    if (job := CURRENT_JOB.get()) is not None:
        fields |= {"job_id": job.job_id, "type": job.type, "attempt": job.attempt}
    fields["logger"] = record.name
    if record.exc_info and record.exc_info[0] is not None:
        fields[_TRACE] = redacted("".join(traceback.format_exception(*record.exc_info)))
    return plain(redacted(record.getMessage()), LONGEST_MESSAGE), fields


def _is_event(record: logging.LogRecord) -> bool:
    """Whether ``LogObserver`` made a record; a record of a handler may have any attributes."""
    return record.name == LOGGER.name and hasattr(record, "event")


def _job_details(fields: Mapping[str, object]) -> list[str]:
    if "job_id" not in fields:
        return []
    parts = [plain(fields["job_id"]), plain(fields.get("type", "?"))]
    parts.append(f"attempt {fields.get('attempt', '?')}")
    seconds = fields.get("seconds")
    if isinstance(seconds, float):
        parts.append(f"in {seconds:.3f} s")
    return parts


def _other_details(fields: Mapping[str, object]) -> list[str]:
    others = {
        name: value
        for name, value in fields.items()
        if value is not None and name != _TRACE and not (name in _JOB_FIELDS and "job_id" in fields)
    }
    return [f"{name}={_quoted(value)}" for name, value in others.items()]


def _quoted(value: object) -> str:
    shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    text = plain(shown)
    return json.dumps(text, ensure_ascii=False).replace("\\\\", "\\") if " " in text else text


def _value(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value)


def _takes_colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ


LONGEST = 500
LONGEST_MESSAGE = 4000
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def plain(value: object, limit: int = LONGEST) -> str:
    """Return a value as one line of at most ``limit`` characters, without control characters."""
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return _CONTROL.sub(_escaped, cut)


def escaped_json(text: str) -> str:
    """Return JSON with the control characters in its strings written as escapes."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = {9: r"\t", 10: r"\n", 13: r"\r"}
    return short.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
