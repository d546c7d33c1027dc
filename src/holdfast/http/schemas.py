"""What clients may send, as JSON Schema: the exact counterpart of what the intake reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.http.fields import DURATION, NO_CONTROLS, TIMESTAMP, Schema
from holdfast.model.job import DependencyKind, Priority
from holdfast.model.policy import MAX_ATTEMPTS, BackoffKind
from holdfast.model.validation import (
    MAX_KEY,
    MAX_TAG_NAME,
    MAX_TAG_VALUE,
    MAX_TAGS,
    MAX_URL,
    QUEUE_RULE,
    TYPE_RULE,
)

PRIORITIES = [level.name for level in Priority]

PRIORITY: Schema = {
    "anyOf": [
        {"type": "string", "enum": PRIORITIES},
        {"type": "integer", "minimum": 0, "maximum": 4},
    ]
}


def _text(most: int = MAX_KEY, told: str = "") -> Schema:
    schema = {"type": "string", "minLength": 1, "maxLength": most, "pattern": NO_CONTROLS}
    return {**schema, "description": told} if told else schema


def _of(schema: Schema, told: str) -> Schema:
    return (
        {"allOf": [schema], "description": told}
        if "$ref" in schema
        else {
            **schema,
            "description": told,
        }
    )


BACKOFF: Schema = {
    "type": "object",
    "additionalProperties": False,
    "description": "How long to wait before another attempt.",
    "properties": {
        "strategy": {"type": "string", "enum": [kind.value for kind in BackoffKind]},
        "initial_delay": DURATION,
        "max_delay": DURATION,
        "multiplier": {"type": "number", "minimum": 1, "maximum": 1000},
        "jitter": {"type": "boolean"},
    },
}


def _nullable(schema: Mapping[str, Any], *, required: Sequence[str]) -> Schema:
    """A schema whose optional fields may also be null, which says nothing."""
    fields = {
        name: field if name in required else _or_null(field)
        for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _or_null(field: Mapping[str, Any]) -> Schema:
    plain = {name: value for name, value in field.items() if name != "description"}
    told = {"description": field["description"]} if "description" in field else {}
    return {"anyOf": [plain, {"type": "null"}], **told}


_SUBMISSION: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type", "payload"],
    "properties": {
        "type": {
            "type": "string",
            "pattern": f"^{TYPE_RULE.pattern}$",
            "description": "Which handler runs the job.",
        },
        "payload": {
            "description": "Any JSON that nests at most 64 deep; with payload_encoding base64, "
            "bytes. Kept as it is sent."
        },
        "payload_encoding": {
            "type": "string",
            "enum": ["json", "base64"],
            "default": "json",
            "description": "base64: the payload is a string that stands for bytes.",
        },
        "queue": {"type": "string", "pattern": f"^{QUEUE_RULE.pattern}$"},
        "priority": PRIORITY,
        "delay": _of(DURATION, "Start no earlier than so long from now."),
        "scheduled_at": {**TIMESTAMP, "description": "Start no earlier than this."},
        "hold": {"type": "boolean", "description": "Wait until it is released."},
        "timeout": _of(DURATION, "How long one attempt may take."),
        "lifetime": _of(DURATION, "How long the job may take in all."),
        "lease": _of(DURATION, "How soon a silent worker loses the job."),
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS},
        "backoff": {"$ref": "#/components/schemas/BackoffConfig"},
        "retry_timeouts": {"type": "boolean"},
        "idempotency_key": _text(told="At most one job of a type per key within the window."),
        "idempotency_window": _of(DURATION, "How long the key counts; 24 hours if silent."),
        "correlation_id": _text(told="Your own id for tracing."),
        "tags": {
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
                "pattern": NO_CONTROLS,
            },
        },
        "depends_on": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 1000,
            "description": "Ids of jobs, or in a batch refs of its own jobs.",
        },
        "dependency_type": {
            "type": "string",
            "enum": [kind.value for kind in DependencyKind if kind is not DependencyKind.FAN_OUT],
        },
        "callback_url": {
            "type": "string",
            "maxLength": MAX_URL,
            "format": "uri",
            "description": "Where its end is to be posted.",
        },
        "limit_key": _text(told="Whose limit it counts towards."),
        "ref": _text(told="A name by which other jobs of the same batch depend on it."),
    },
}
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
            "description": "All or none; else each job gets its own answer.",
        },
    },
}

_SEARCH: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "types": {"type": "array", "items": {"type": "string", "pattern": NO_CONTROLS}},
        "queues": {"type": "array", "items": {"type": "string", "pattern": NO_CONTROLS}},
        "states": {"type": "array", "items": {"$ref": "#/components/schemas/State"}},
        "priorities": {"type": "array", "items": PRIORITY},
        "tags": {
            "type": "object",
            "propertyNames": {"pattern": r"^(?!holdfast:)[^\u0000]*$"},
            "additionalProperties": {"type": "string", "pattern": NO_CONTROLS},
        },
        "correlation_id": {"type": "string", "pattern": NO_CONTROLS},
        "created_after": TIMESTAMP,
        "created_before": TIMESTAMP,
        "updated_after": TIMESTAMP,
        "order": {"type": "string", "enum": ["CREATED_ASC", "CREATED_DESC", "UPDATED_DESC"]},
        "cursor": {"type": "string", "description": "From the page before."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    },
}

SEARCH = _nullable(_SEARCH, required=["limit"])

DURATION_SCHEMA: Schema = {
    "description": "Seconds, or an ISO 8601 duration of weeks, days, hours, minutes, seconds.",
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
