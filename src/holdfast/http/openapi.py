"""The OpenAPI document, made from the declarations of the routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.api.errors import MEANING, STATUS_OF, ErrorResponse
from holdfast.http.endpoint import Endpoint
from holdfast.http.fields import Field, Schema
from holdfast.http.schemas import BACKOFF, BATCH, DURATION_SCHEMA, SUBMISSION
from holdfast.model.job import State
from holdfast.model.status import EventInfo
from holdfast.model.submission import QUEUE_RULE
from holdfast.runtime.version import __version__

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_PATH_HELP = {"job_id": "The job's id.", "queue": "The queue's name."}
_ALWAYS = ("INTERNAL_ERROR", "UNAVAILABLE")
_WITH_KEY = ("UNAUTHORIZED", "FORBIDDEN", "MISDIRECTED", "QUOTA_EXCEEDED")
_WITH_BODY = ("INVALID_REQUEST", "REQUEST_TIMEOUT", "TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
_TIMES = ("_at", "_until", "timestamp", "scheduled_for")
_DURATION = r"^-?P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d{1,6})?S)?)?$"
Document = dict[str, object]

COMPONENT_NAMES = {
    "BatchBody": "BatchResult",
    "DeliveryAttempt": "Attempt",
    "EventInfo": "JobEvent",
    "HealthBody": "Health",
    "LogEntry": "LogLine",
    "SpawnedBody": "Spawned",
    "SubmissionBody": "SubmissionResult",
}
"""Class -> component, where they differ: generated clients name their classes by components."""

STATES = {
    State.PENDING: "waits for other jobs, or is held until it is released",
    State.SCHEDULED: "ready to run",
    State.DELAYED: "waits for its time",
    State.RUNNING: "a worker runs it",
    State.RETRYING: "waits for the time of its next attempt",
    State.COMPLETED: "ended with success",
    State.FAILED: "ended with a failure that is not retried",
    State.DEAD_LETTER: "ended because its attempts or its lifetime ran out",
    State.CANCELLED: "ended by a cancellation",
}


def document(endpoints: Sequence[Endpoint]) -> Document:
    """Return the OpenAPI document of endpoints."""
    responses = {e.response for e in endpoints if e.response is not None}
    kinds = sorted([*responses, ErrorResponse, EventInfo, State], key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template=_REF, schema_hook=_any_json
    )
    _mark_times(components)
    components["State"]["description"] = _state_help()
    refs = {kind: _renamed(schema) for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, object]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "version": __version__, "description": _INFO},
        "paths": paths,
        "components": {
            "schemas": {
                **{_component(name): _renamed(schema) for name, schema in components.items()},
                "BackoffConfig": BACKOFF,
                "BatchSubmission": BATCH,
                "Duration": DURATION_SCHEMA,
                "JobSubmission": SUBMISSION,
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": _KEY_HELP}
            },
        },
    }


_INFO = (
    "A durable job queue. Times are ISO 8601 in UTC; durations are seconds or ISO 8601. Every"
    " response has the header X-Request-ID. Every error has the same body, which lists all"
    " broken rules at once. A job is SCHEDULED when it is ready to run and DELAYED while it waits"
    " for its time; State describes every state."
)
_KEY_HELP = (
    "An API key made with `holdfast keys create`. While no key exists, the service accepts"
    " requests from its own machine only, and without a key."
)


def _any_json(kind: type) -> Document:
    return {"description": "Any JSON."}


def _component(name: str) -> str:
    return COMPONENT_NAMES.get(name, name)


def _renamed(value: Any) -> Any:
    """Return a schema with components instead of classes in its titles and references."""
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    renamed = {name: _renamed(one) for name, one in value.items()}
    if isinstance(title := value.get("title"), str):
        renamed["title"] = _component(title)
    if isinstance(ref := value.get("$ref"), str):
        renamed["$ref"] = _REF.format(name=_component(ref.rpartition("/")[2]))
    if renamed.get("format") == "duration":  # JSON Schema's format has no fractions of a second
        del renamed["format"]
        renamed |= {"pattern": _DURATION, "description": "An ISO 8601 duration."}
    return renamed


def _state_help() -> str:
    return " ".join(f"{state}: {meaning}." for state, meaning in STATES.items())


def _mark_times(components: Mapping[str, Document]) -> None:
    """Give times their format: msgspec describes them as plain strings."""
    for schema in components.values():
        properties = schema.get("properties")
        for name, field in properties.items() if isinstance(properties, dict) else ():
            if name.endswith(_TIMES):
                for one in field.get("anyOf", [field]):
                    if one.get("type") == "string":
                        one["format"] = "date-time"


def _operation(endpoint: Endpoint, refs: Mapping[type, Schema]) -> Document:
    needs_key = endpoint.permission is not None
    sentences = [endpoint.description] if endpoint.description else []
    if needs_key:
        sentences.append(f"Needs the permission `{endpoint.permission}`.")
    operation: Document = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": " ".join(sentences),
        "tags": [_tag(endpoint)],
        "parameters": _parameters(endpoint),
        "responses": {**_successes(endpoint, refs), **_errors(endpoint)},
    }
    if needs_key:
        operation["security"] = [{"bearer": []}, {}]
    if endpoint.takes_body:
        operation["requestBody"] = _body(endpoint)
    return operation


def _tag(endpoint: Endpoint) -> str:
    return endpoint.handler.__module__.rpartition(".")[2]


_PATH_SCHEMA = {"queue": {"type": "string", "pattern": f"^{QUEUE_RULE.pattern}$"}}


def _parameters(endpoint: Endpoint) -> list[Document]:
    path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_HELP.get(name, ""),
            "schema": _PATH_SCHEMA.get(name, {"type": "string", "minLength": 1}),
        }
        for name in _PARAMETER.findall(endpoint.path)
    ]
    return [
        *path,
        *(_parameter(field, "query") for field in endpoint.query),
        *(_parameter(field, "header") for field in endpoint.headers),
    ]


def _parameter(field: Field, place: str) -> Document:
    found: Document = {"name": field.name, "in": place, "schema": field.schema}
    if field.description:
        found["description"] = field.description
    if field.deep:
        found |= {"style": "deepObject", "explode": True}
    elif field.many:
        found |= {"style": "form", "explode": True}
    return found


def _body(endpoint: Endpoint) -> Document:
    schema = endpoint.body_schema or object_schema(endpoint.body_fields or ())
    content: Document = {"schema": schema}
    if endpoint.example is not None:
        content["example"] = endpoint.example
    required = any(field.required for field in endpoint.body_fields or ())
    if endpoint.body_schema is not None:
        required = not endpoint.body_optional
    return {"required": required, "content": {"application/json": content}}


def object_schema(fields: Sequence[Field]) -> Schema:
    """Return the schema of an object with these fields."""
    properties = {
        field.name: {**field.schema, "description": field.description}
        if field.description and "$ref" not in field.schema
        else field.schema
        for field in fields
    }
    schema: Document = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    required = [field.name for field in fields if field.required]
    return {**schema, "required": required} if required else schema


def _successes(endpoint: Endpoint, refs: Mapping[type, Schema]) -> Document:
    schema: Schema = {"type": "string"}
    if endpoint.response is not None:
        schema = refs[endpoint.response]
        if endpoint.name == "getResult":
            schema = {"anyOf": [schema, {"type": "null"}]}
    elif endpoint.media_type == "application/json":
        schema = {"type": "object"}
    content = {endpoint.media_type: {"schema": schema}}
    header = {"X-Request-ID": {"schema": {"type": "string"}}}
    first = {"description": endpoint.summary, "content": content, "headers": header}
    if endpoint.name == "getReadiness":
        others = {"503": {**first, "description": "Not ready: the store cannot be reached."}}
    else:
        others = {
            str(status): {**first, "description": meaning}
            for status, meaning in endpoint.other_statuses.items()
        }
    return {str(endpoint.status): first, **others}


def _errors(endpoint: Endpoint) -> Document:
    codes = [*endpoint.errors, *_ALWAYS]
    if endpoint.permission is not None:
        codes += _WITH_KEY
    if endpoint.takes_body:
        codes += _WITH_BODY
    elif endpoint.permission is not None or endpoint.query:
        codes.append("INVALID_REQUEST")
    if endpoint.name == "getReadiness":
        codes.remove("UNAVAILABLE")
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(STATUS_OF[code], []).append(code)
    return {
        str(status): {
            "description": " ".join(f"{code}: {MEANING[code]}" for code in found),
            "content": {"application/json": {"schema": _error_schema(found)}},
            **_headers(status),
        }
        for status, found in sorted(by_status.items())
    }


def _headers(status: int) -> Document:
    if status not in (429, 503):
        return {}
    retry_after = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
    return {"headers": {"Retry-After": retry_after}}


def _error_schema(codes: Sequence[str]) -> Schema:
    return {"$ref": _REF.format(name="ErrorResponse")} if codes else {}
