"""Writes docs/reference-http.md from the OpenAPI document: every route, field and response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.http.application import ENDPOINTS
from holdfast.http.openapi import document
from tests.architecture import tree

PAGE = tree.ROOT / "docs" / "reference-http.md"
HEAD = """# HTTP routes

[The HTTP service](http.md) explains keys, roles, errors and limits. A running service shows the
same under `/docs`, with examples, and for machines under `/openapi.json`.
`python -m tests.docs.reference` generates this page from that document.

Every route that needs a permission also answers `UNAUTHORIZED`, `FORBIDDEN` and `QUOTA_EXCEEDED`,
and every route `INTERNAL_ERROR` and `UNAVAILABLE`: see
[errors](reference-errors.md#of-the-http-service).
"""
GROUPS = {
    "submit": "Submitting",
    "jobs": "Jobs",
    "manage": "Changing a job",
    "batches": "Changing several jobs",
    "operations": "Changing many jobs",
    "schedules": "Schedules",
    "system": "Failures, queues, workers",
    "oversight": "The past week",
    "control": "Graphs, limits, workers, scaling",
    "events": "Events",
    "webhooks": "Webhooks",
    "leases": "Workers over HTTP: claims",
    "outcomes": "Workers over HTTP: outcomes",
    "health": "The service itself",
}
"""The heading of each group of routes."""
METHODS = ("get", "post", "patch", "put", "delete")
USUAL = {"400", "401", "403", "408", "413", "415", "421", "429", "500", "503"}
"""Statuses of errors that the head of the page explains."""
Operation = dict[str, Any]


def render() -> str:
    """Return the page."""
    found: Operation = document(ENDPOINTS)
    groups: dict[str, list[str]] = {}
    for path, methods in found["paths"].items():
        for method in METHODS:
            if method in methods:
                operation = methods[method]
                lines = groups.setdefault(operation["tags"][0], [])
                lines += _route(f"{method.upper()} {path}", operation)
    lines = [HEAD]
    for tag in sorted(groups, key=list(GROUPS).index):
        lines += [f"## {GROUPS[tag]}", "", *groups[tag]]
    lines += ["## Bodies", "", "What the routes take and return, by name.", ""]
    for name, schema in sorted(found["components"]["schemas"].items()):
        lines += _schema(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _route(title: str, operation: Operation) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    text = operation.get("description", "")
    yield f"{operation['summary']}. {text}".strip()
    yield ""
    rows = [*_parameters(operation), *_body(operation)]
    if rows:
        yield "| name | in | type | meaning |\n| --- | --- | --- | --- |"
        yield from rows
        yield ""
    yield _responses(operation)
    yield ""


def _parameters(operation: Operation) -> Iterator[str]:
    for each in operation.get("parameters", ()):
        name = f"`{each['name']}`" + (" (required)" if each.get("required") else "")
        yield _row(name, each["in"], type_of(each["schema"]), each.get("description", ""))


def _body(operation: Operation) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        yield _row("", "body", type_of(schema), "")
    for name, field in schema.get("properties", {}).items():
        needed = " (required)" if name in schema.get("required", ()) else ""
        yield _row(f"`{name}`{needed}", "body", type_of(field), field.get("description", ""))


def _responses(operation: Operation) -> str:
    said = []
    for status, response in operation["responses"].items():
        if status in USUAL:
            continue
        schema = next(iter(response.get("content", {}).values()), {}).get("schema", {})
        what = type_of(schema) if status < "300" else response["description"].partition(":")[0]
        said.append(f"{status}: {what}" if what else status)
    return "Responds " + "; ".join(said) + "."


def _schema(name: str, schema: Operation) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if text := schema.get("description", ""):
        yield text.replace("``", "`")
        yield ""
    if values := schema.get("enum"):
        yield "One of " + ", ".join(f"`{value}`" for value in values) + "."
        yield ""
    if fields := schema.get("properties"):
        yield "| field | type | meaning |\n| --- | --- | --- |"
        for field, inner in fields.items():
            needed = " (required)" if field in schema.get("required", ()) else ""
            yield _row(f"`{field}`{needed}", type_of(inner), inner.get("description", ""))
        yield ""


def type_of(schema: Operation) -> str:
    """Return a schema in a few words."""
    if ref := schema.get("$ref"):
        name = ref.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if kinds := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(each) for each in kinds))
    if values := schema.get("enum"):
        return "one of " + ", ".join(f"`{value}`" for value in values)
    return _plain(schema)


def _plain(schema: Operation) -> str:
    match schema.get("type"):
        case "array":
            return f"list of {type_of(schema.get('items', {})) or 'anything'}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"map of {type_of(inner)}" if isinstance(inner, dict) and inner else "object"
        case list() as several:
            return " or ".join(several)
        case str() as one:
            return {"date-time": "time"}.get(schema.get("format", ""), one)
        case _:
            return ""


def _row(*cells: str) -> str:
    clean = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(clean) + " |"
