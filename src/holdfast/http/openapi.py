"""The OpenAPI document, made from the same declarations as the routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.api.errors import MEANING, STATUS_OF, ErrorResponse
from holdfast.api.jobs import EventBody
from holdfast.http.endpoint import Endpoint
from holdfast.http.fields import Field, Schema
from holdfast.http.schemas import BACKOFF, BATCH, DURATION_SCHEMA, SUBMISSION
from holdfast.model.job import State
from holdfast.model.validation import QUEUE_RULE
from holdfast.runtime.version import __version__

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_PATH_HELP = {"job_id": "The job's id.", "queue": "The queue's name."}
_ALWAYS = ("INTERNAL_ERROR", "UNAVAILABLE")
_KEYED = ("UNAUTHORIZED", "FORBIDDEN", "MISDIRECTED", "QUOTA_EXCEEDED")
_BODIED = ("INVALID_REQUEST", "REQUEST_TIMEOUT", "TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
_TIMES = ("_at", "_until", "timestamp", "scheduled_for")
Document = dict[str, object]


def document(endpoints: Sequence[Endpoint]) -> Document:
    """Describe endpoints."""
    shapes = {e.answer for e in endpoints if e.answer is not None}
    kinds = sorted([*shapes, ErrorResponse, EventBody, State], key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template=_REF, schema_hook=_anything
    )
    _say_times(components)
    refs = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdfast",
            "version": __version__,
            "description": "A durable job queue. Times are ISO 8601 in UTC, durations seconds or"
            " ISO 8601. Every answer carries X-Request-ID; every error has the same shape and"
            " lists all that is wrong at once.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                **components,
                "BackoffConfig": BACKOFF,
                "BatchSubmission": BATCH,
                "Duration": DURATION_SCHEMA,
                "JobSubmission": SUBMISSION,
            },
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key made with `holdfast keys create`. While none"
                    " exists, the service listens on its own machine only and asks for none.",
                }
            },
        },
    }


def _anything(kind: type) -> Document:
    return {"description": "Any JSON."}


def _say_times(components: Mapping[str, Document]) -> None:
    """Mark what is a time: msgspec says only that it is a string."""
    for schema in components.values():
        properties = schema.get("properties")
        for name, field in properties.items() if isinstance(properties, dict) else ():
            if name.endswith(_TIMES):
                for one in field.get("anyOf", [field]):
                    if one.get("type") == "string":
                        one["format"] = "date-time"


def _operation(endpoint: Endpoint, refs: Mapping[type, Schema]) -> Document:
    keyed = endpoint.permission is not None
    told = [endpoint.help] if endpoint.help else []
    if endpoint.permission is not None:
        told.append(f"Needs the permission `{endpoint.permission}`.")
    operation: Document = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": " ".join(told),
        "tags": [_tag(endpoint)],
        "parameters": _parameters(endpoint),
        "responses": {**_successes(endpoint, refs), **_errors(endpoint)},
    }
    if keyed:
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
        *(_parameter(field, "header") for field in endpoint.header),
    ]


def _parameter(field: Field, place: str) -> Document:
    found: Document = {"name": field.name, "in": place, "schema": field.schema}
    if field.help:
        found["description"] = field.help
    if field.deep:
        found |= {"style": "deepObject", "explode": True}
    elif field.many:
        found |= {"style": "form", "explode": True}
    return found


def _body(endpoint: Endpoint) -> Document:
    content: Document = {"schema": endpoint.body or form_schema(endpoint.form or ())}
    if endpoint.example is not None:
        content["example"] = endpoint.example
    needed = any(field.required for field in endpoint.form or ())
    if endpoint.body is not None:
        needed = not endpoint.may_be_silent
    return {"required": needed, "content": {"application/json": content}}


def form_schema(fields: Sequence[Field]) -> Schema:
    """Describe an object with these fields."""
    properties = {
        field.name: {**field.schema, "description": field.help}
        if field.help and "$ref" not in field.schema
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
    if endpoint.answer is not None:
        schema = refs[endpoint.answer]
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
            str(status): {**first, "description": told} for status, told in endpoint.others.items()
        }
    return {str(endpoint.status): first, **others}


def _errors(endpoint: Endpoint) -> Document:
    codes = [*endpoint.errors, *_ALWAYS]
    if endpoint.permission is not None:
        codes += _KEYED
    if endpoint.takes_body:
        codes += _BODIED
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
    told = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
    return {"headers": {"Retry-After": told}}


def _error_schema(codes: Sequence[str]) -> Schema:
    return {"$ref": _REF.format(name="ErrorResponse")} if codes else {}
