"""Renders the Helm chart without Helm, which no package registry offers.

It knows the part of the template language that the chart uses, and refuses everything else: `if`,
`if not`, `end`, `fail`, values, `quote`, `urlquery`, `add` and `mul`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import yaml

from tests.architecture import tree

CHART = tree.ROOT / "deploy" / "helm" / "holdfast"
ACTION = re.compile(r"(\s*)\{\{(-?) (.*?) (?:-\}\}\s*|\}\})", re.DOTALL)
FUNCTIONS = {"quote": lambda value: json.dumps(str(value)), "urlquery": quote_plus}
RELEASE = {"Name": "shop", "Namespace": "jobs"}


class ChartError(Exception):
    """The chart refuses its values, or uses what this module does not know."""


def rendered(**changes: object) -> list[dict[str, Any]]:
    """Return the manifests of the chart; `worker__slots=5` changes a value."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    for path, value in changes.items():
        *sections, name = path.split("__")
        place = values
        for section in sections:
            place = place[section]
        assert name in place, path
        place[name] = value
    scope = {"Values": values, "Release": RELEASE}
    texts = [text_of(path, scope) for path in sorted((CHART / "templates").glob("*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def text_of(path: Path, scope: Mapping[str, Any]) -> str:
    """Return a template with its actions carried out."""
    out: list[str] = []
    shown, position = [True], 0
    text = path.read_text("utf-8")
    for action in ACTION.finditer(text):
        before, trims, body = action.groups()
        out.append(text[position : action.start()] if shown[-1] else "")
        out.append(before if shown[-1] and not trims else "")
        out.append(_carried_out(body, scope, shown))
        position = action.end()
    if shown != [True]:
        raise ChartError(f"{path.name}: if without end")
    return "".join(out) + text[position:]


def _carried_out(body: str, scope: Mapping[str, Any], shown: list[bool]) -> str:
    match body.split():
        case ["end"]:
            shown.pop()
        case ["if", value]:
            shown.append(shown[-1] and bool(_value(value, scope)))
        case ["if", "not", value]:
            shown.append(shown[-1] and not _value(value, scope))
        case ["fail", *_]:
            if shown[-1]:
                raise ChartError(body)
        case words:
            return str(_expression(words, scope)) if shown[-1] else ""
    return ""


def _expression(words: list[str], scope: Mapping[str, Any]) -> object:
    match words:
        case [value]:
            return _value(value, scope)
        case [value, "|", function] if function in FUNCTIONS:
            return FUNCTIONS[function](_value(value, scope))
        case ["add", first, second]:
            return _value(first, scope) + _value(second, scope)
        case ["mul", first, second]:
            return _value(first, scope) * _value(second, scope)
    raise ChartError(f"unknown: {' '.join(words)}")


def _value(text: str, scope: Mapping[str, Any]) -> Any:
    """A number, or what a path such as .Values.app leads to, which must exist."""
    if text.isdigit():
        return int(text)
    found: Any = scope
    for name in text.removeprefix(".").split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise ChartError(f"no such value: {text}")
        found = found[name]
    return found
