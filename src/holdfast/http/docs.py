"""The OpenAPI document as one page of HTML; no scripts and no other files, so it works offline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:3rem}h3{font:600 1rem ui-monospace,monospace;margin:0;display:inline}
details{border:1px solid #8886;border-radius:.4rem;margin:.5rem 0;padding:.5rem .8rem}
summary{cursor:pointer}pre{overflow:auto;padding:.6rem;background:#8881;border-radius:.3rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{text-align:left;vertical-align:top;padding:.25rem .5rem;border-bottom:1px solid #8884}
code{font-family:ui-monospace,monospace}
"""


def page(document: Mapping[str, Any]) -> bytes:
    """Return the document as HTML."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])} ",
        "The OpenAPI document: <a href='/openapi.json'>openapi.json</a>.</p>",
        f"<p>{escape(document['components']['securitySchemes']['bearer']['description'])}</p>",
        *_operations(document["paths"]),
        "<h2>Schemas</h2>",
        *_schemas(document["components"]["schemas"]),
        "</main></body></html>",
    ]
    return "".join(parts).encode()


def _operations(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            tag = operation["tags"][0]
            groups.setdefault(tag, []).append("".join(_operation(path, method, operation)))
    for tag, found in groups.items():
        yield f"<h2>{escape(tag.capitalize())}</h2>"
        yield from found


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details id='{escape(operation['operationId'])}'><summary>"
    yield f"<h3>{method.upper()} {escape(path)}</h3> {escape(operation['summary'])}</summary>"
    yield f"<p>{escape(operation['description'])}</p>"
    if operation["parameters"]:
        yield "<table><tr><th>Parameter<th>In<th>Type<th></tr>"
        for one in operation["parameters"]:
            yield f"<tr><td><code>{escape(one['name'])}</code><td>{one['in']}"
            yield f"<td>{_kind(one['schema'])}<td>{escape(one.get('description', ''))}</tr>"
        yield "</table>"
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        yield f"<p>Body: {_kind(content['schema'])}</p>"
        if "properties" in content["schema"]:
            yield from _fields(content["schema"])
        if "example" in content:
            yield f"<pre>{escape(json.dumps(content['example'], indent=2))}</pre>"
    yield "<table><tr><th>Status<th>Meaning<th>Body</tr>"
    for status, response in operation["responses"].items():
        kinds = " ".join(_kind(c["schema"]) for c in response["content"].values())
        yield f"<tr><td>{status}<td>{escape(response['description'])}<td>{kinds}</tr>"
    yield "</table></details>"


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield f"<details id='{escape(name)}'><summary><h3>{escape(name)}</h3> "
        yield f"{escape(str(schema.get('description', '')))}</summary>"
        if "properties" in schema:
            yield from _fields(schema)
        else:
            yield f"<pre>{escape(json.dumps(schema, indent=2))}</pre>"
        yield "</details>"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    yield "<table><tr><th>Field<th>Type<th></tr>"
    for name, field in schema["properties"].items():
        mark = " *" if name in required else ""
        text = escape(str(field.get("description", "")))
        yield f"<tr><td><code>{escape(name)}</code>{mark}<td>{_kind(field)}<td>{text}</tr>"
    yield "</table>"


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a type in a few words, with links to schemas."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for several in ("anyOf", "allOf"):
        if several in schema:
            return " or ".join(_kind(one) for one in schema[several])
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return escape(str(schema.get("format") or schema.get("type") or "any JSON"))
