"""JSON Schemas of request bodies: they state the rules that ``model.validation`` checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.http.fields import DURATION, NO_NUL, TIMESTAMP, Schema
from holdfast.model.deduplication import MAX_ID
from holdfast.model.job import SELECTABLE_KINDS, Priority
from holdfast.model.policy import MAX_ATTEMPTS, BackoffKind
from holdfast.model.submission import QUEUE_RULE, TYPE_RULE
from holdfast.model.validation import (
    MAX_HEADERS,
    MAX_KEY,
    MAX_TAG_NAME,
    MAX_TAG_VALUE,
    MAX_TAGS,
    MAX_URL,
)

PRIORITIES = [level.name for level in Priority]

PRIORITY: Schema = {
    "anyOf": [
        {"type": "string", "enum": PRIORITIES},
        {"type": "integer", "minimum": 0, "maximum": 4},
    ]
}


def _text(description: str) -> Schema:
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_KEY,
        "pattern": NO_NUL,
        "description": description,
    }


def _duration(description: str) -> Schema:
    return {"allOf": [DURATION], "description": description}


BACKOFF: Schema = {
    "type": "object",
    "additionalProperties": False,
    "description": "How long to wait before the next attempt.",
    "properties": {
        "strategy": {"type": "string", "enum": [kind.value for kind in BackoffKind]},
        "initial_delay": DURATION,
        "max_delay": DURATION,
        "multiplier": {"type": "number", "minimum": 1, "maximum": 1000},
        "jitter": {"type": "boolean"},
    },
}


def _nullable(schema: Mapping[str, Any], *, required: Sequence[str]) -> Schema:
    """Return a schema whose optional fields may be null, which means absent."""
    fields = {
        name: field if name in required else _or_null(field)
        for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _or_null(field: Mapping[str, Any]) -> Schema:
    plain = {name: value for name, value in field.items() if name != "description"}
    text = {"description": field["description"]} if "description" in field else {}
    return {"anyOf": [plain, {"type": "null"}], **text}


_TAGS: Schema = {
    "type": "object",
    "maxProperties": MAX_TAGS,
    "propertyNames": {
        "minLength": 1,
        "maxLength": MAX_TAG_NAME,
        "pattern": r"^(?!holdfast:)[^\u0000]*$",
    },
    "additionalProperties": {
        "type": "string",
        "maxLength": MAX_TAG_VALUE,
        "pattern": NO_NUL,
    },
}


def _removal(state: str) -> Schema:
    count = {"type": "integer", "minimum": 0, "maximum": 10**9}
    rule = {
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": ["age"]}, {"required": ["count"]}],
        "properties": {
            "age": _duration("Seconds."),
            "count": count,
            "limit": {**count, "minimum": 1},
        },
    }
    return {
        "anyOf": [{"type": "boolean"}, count, rule],
        "description": f"On Redis: which {state} jobs of the queue are kept when the job ends."
        " true or 0: this one is deleted; false: all; a number: so many.",
    }


_DEDUPLICATION: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
        "ttl": _duration("How long the id is held; by default until the job has ended."),
        "extend": {"type": "boolean", "description": "A duplicate starts the ttl again."},
        "replace": {"type": "boolean", "description": "Replace a job that is delayed."},
        "reschedule": {
            "type": "boolean",
            "description": "Give a job that is delayed the delay of the duplicate.",
        },
        "keep_last_if_active": {
            "type": "boolean",
            "description": "Submit the newest duplicate of a running job when that has ended.",
        },
    },
    "description": "On Redis: BullMQ's deduplication. While a job of the queue holds the id, a"
    " submission is answered with that job.",
}

_SUBMISSION: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "payload"],
    "properties": {
        "type": {
            "type": "string",
            "pattern": f"^{TYPE_RULE.pattern}$",
            "description": "The handler that runs the job.",
        },
        "payload": {
            "description": "Any JSON nested at most 64 levels deep, or with payload_encoding"
            " base64 bytes. Stored exactly as sent."
        },
        "payload_encoding": {
            "type": "string",
            "enum": ["json", "base64"],
            "default": "json",
            "description": "base64: the payload is a string that encodes bytes.",
        },
        "queue": {"type": "string", "pattern": f"^{QUEUE_RULE.pattern}$"},
        "priority": PRIORITY,
        "delay": _duration("Start no earlier than this long from now."),
        "scheduled_at": {**TIMESTAMP, "description": "Start no earlier than this time."},
        "hold": {"type": "boolean", "description": "Do not run the job before it is released."},
        "timeout": _duration("How long one attempt may take."),
        "lifetime": _duration("How long the job may take in total."),
        "lease": _duration("How long a worker keeps the job without a heartbeat."),
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS},
        "backoff": {"$ref": "#/components/schemas/BackoffConfig"},
        "retry_timeouts": {"type": "boolean", "description": "Retry after a timeout."},
        "retry_crashes": {
            "type": "boolean",
            "description": "Retry after a failure of category SYSTEM: a crash, a lost lease.",
        },
        "remove_on_complete": _removal("completed"),
        "remove_on_fail": _removal("failed"),
        "deduplication": _DEDUPLICATION,
        "idempotency_key": _text("At most one job per type and key exists within the window."),
        "idempotency_window": _duration("How long the key counts; 24 hours by default."),
        "correlation_id": _text("Your own id, for tracing."),
        "tags": _TAGS,
        "headers": {
            "type": "object",
            "propertyNames": {"pattern": NO_NUL},
            "additionalProperties": {"type": "string", "pattern": NO_NUL},
            "description": f"Context for the handler, at most {MAX_HEADERS} bytes;"
            " jobs that it spawns inherit it.",
        },
        "depends_on": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 1000,
            "description": "Ids of jobs; in a batch also refs of its jobs.",
        },
        "dependency_type": {
            "type": "string",
            "enum": [kind.value for kind in SELECTABLE_KINDS],
        },
        "callback_url": {
            "type": "string",
            "maxLength": MAX_URL,
            "format": "uri",
            "description": "Where a message is posted when the job ends.",
        },
        "limit_key": _text("The key whose limits apply to the job."),
        "ref": _text("A name by which other jobs of the same batch can depend on it."),
    },
}
METADATA: Mapping[str, Schema] = {
    "tags": _or_null({**_TAGS, "description": "They replace all tags of the job."}),
    "correlation_id": _or_null({"type": "string", "maxLength": MAX_KEY, "pattern": NO_NUL}),
    "callback_url": {
        "anyOf": [
            {"type": "string", "maxLength": MAX_URL, "format": "uri"},
            {"type": ["string", "null"], "maxLength": 0},
        ],
        "description": "An empty text removes it.",
    },
    "delay": _or_null(_duration("Due this long from now; 0: at once.")),
    "scheduled_at": _or_null({**TIMESTAMP, "description": "Due at this time."}),
}
"""What changes after submission, beside the priority."""

SUBMISSION = _nullable(_SUBMISSION, required=["type", "payload", "payload_encoding"])

BATCH: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["jobs"],
    "properties": {
        "jobs": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1000,
            "items": {"$ref": "#/components/schemas/JobSubmission"},
        },
        "atomic": {
            "type": "boolean",
            "default": True,
            "description": "Store all jobs or none; otherwise each job has its own result.",
        },
    },
}

_SEARCH: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "types": {"type": "array", "items": {"type": "string", "pattern": NO_NUL}},
        "queues": {"type": "array", "items": {"type": "string", "pattern": NO_NUL}},
        "states": {"type": "array", "items": {"$ref": "#/components/schemas/State"}},
        "priorities": {"type": "array", "items": PRIORITY},
        "tags": {
            "type": "object",
            "maxProperties": MAX_TAGS,
            "propertyNames": {"pattern": r"^(?!holdfast:)[^\u0000]*$"},
            "additionalProperties": {"type": "string", "pattern": NO_NUL},
        },
        "correlation_id": {"type": "string", "pattern": NO_NUL},
        "id_prefix": {"type": "string", "pattern": NO_NUL},
        "code": {"type": "string", "pattern": NO_NUL},
        "worker": {"type": "string", "pattern": NO_NUL},
        "created_after": TIMESTAMP,
        "created_before": TIMESTAMP,
        "updated_after": TIMESTAMP,
        "group": {"type": "string", "maxLength": 64, "pattern": NO_NUL},
        "order": {"type": "string", "enum": ["CREATED_ASC", "CREATED_DESC", "UPDATED_DESC"]},
        "cursor": {"type": "string", "description": "next_cursor of the page before."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    },
}

SEARCH = _nullable(_SEARCH, required=["limit"])

DURATION_SCHEMA: Schema = {
    "description": "Seconds, or an ISO 8601 duration of weeks, days, hours, minutes and seconds.",
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 3_155_760_000},
        {
            "type": "string",
            "pattern": r"^P(?=\d|T\d)(\d{1,3}(\.\d{1,6})?W)?(\d{1,4}(\.\d{1,6})?D)?"
            r"(T(?=\d)(\d{1,5}(\.\d{1,6})?H)?(\d{1,7}(\.\d{1,6})?M)?(\d{1,9}(\.\d{1,6})?S)?)?$",
        },
    ],
    "examples": [300, "PT5M"],
}
