"""Writes docs/reference-api.md, the public Python names, from their docstrings.

``python -m scripts.generate_api``. griffe reads the sources; nothing is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference-api.md"
MODULES = {
    "holdfast": "Everything that an app, a worker or a client of the service needs.",
    "holdfast.testing": "For tests of your own tasks.",
    "holdfast.contrib.otel": "Tracing with OpenTelemetry.",
    "holdfast.contrib.sentry": "Errors and traces for Sentry.",
    "holdfast.contrib.django": "For Django projects: the app, and the backend of Django's tasks.",
    "holdfast.contrib.django.testing": "For tests of Django projects.",
    "holdfast.contrib.starlette": "For Starlette and other ASGI sites.",
    "holdfast.contrib.fastapi": "For FastAPI.",
    "holdfast.contrib.litestar": "For Litestar.",
    "holdfast.contrib.flask": "For Flask.",
    "holdfast.contrib.sqlalchemy": "For sessions of SQLAlchemy.",
    "holdfast.contrib.mounting": "The API and the dashboard as parts of an ASGI site.",
    "holdfast.contrib.structlog": "For structlog.",
    "holdfast.contrib.celery": "For code written for Celery.",
}
HIDDEN = frozenset({"operations"})
"""Members that are seams between the parts, not for callers."""
HEAD = """# Python reference

Generated from the docstrings of the public names. `holdfast.Client` has the operations of
`Holdfast` over HTTP; `app.sync` has the same for blocking code.
"""


def reference() -> str:
    """Return the page."""
    package = griffe.load("holdfast", search_paths=[ROOT / "src"], allow_inspection=False)
    lines = [HEAD]
    for path, purpose in MODULES.items():
        lines += [f"## {path}", "", purpose, ""]
        module = package[path.removeprefix("holdfast").lstrip(".")] if "." in path else package
        for name in sorted(_exported(module), key=str.lower):
            lines += _described(module[name], name)
    return "\n".join(lines).rstrip() + "\n"


def _exported(module: griffe.Object | griffe.Alias) -> list[str]:
    return [str(name) for name in module.exports or () if not str(name).startswith("__")]


def _described(member: griffe.Object | griffe.Alias, name: str) -> Iterator[str]:
    found = member.final_target if isinstance(member, griffe.Alias) else member
    yield f"### {name}"
    yield ""
    if isinstance(found, griffe.Class):
        yield from _of_class(found)
    elif isinstance(found, griffe.Function):
        yield from _of_function(found, name)
    else:
        yield from _text(found)


def _of_class(found: griffe.Class) -> Iterator[str]:
    bases = [str(base) for base in found.bases if "Struct" not in str(base)]
    yield f"    class {found.name}" + (f"({', '.join(bases)})" if bases else "")
    yield ""
    yield from _text(found)
    init = found.all_members.get("__init__")
    if (
        init is not None
        and (made := _target(init)) is not None
        and made.path.startswith("holdfast")
    ):
        yield from _of_function(made, found.name)
    fields = [
        each
        for each in found.members.values()
        if isinstance(each, griffe.Attribute)
        and not each.name.startswith("_")
        and each.name not in HIDDEN
        and (each.annotation or each.docstring or any("Enum" in base for base in bases))
    ]
    for field in fields:
        yield from _of_field(field)
    if fields:
        yield ""
    for name, member in sorted(found.all_members.items()):
        target = _target(member)
        if target is not None and not name.startswith("_") and name not in HIDDEN:
            yield from _of_function(target, name)


def _target(member: griffe.Object | griffe.Alias) -> griffe.Function | None:
    try:
        found = member.final_target if isinstance(member, griffe.Alias) else member
    except griffe.GriffeError:  # inherited from another package
        return None
    return found if isinstance(found, griffe.Function) else None


def _of_field(field: griffe.Attribute) -> Iterator[str]:
    kind = f": {field.annotation}" if field.annotation else ""
    value = f" = {field.value}" if field.value is not None and len(str(field.value)) < 40 else ""
    text = " ".join(field.docstring.value.split()) if field.docstring else ""
    yield f"- `{field.name}{kind}{value}`" + (f": {text}" if text else "")


def _of_function(found: griffe.Function, name: str) -> Iterator[str]:
    prefix = "async def " if "async" in found.labels else ""
    yield f"**`{prefix}{name}({_parameters(found)}){_returned(found)}`**"
    yield ""
    if name != found.name or found.name != "__init__":
        yield from _text(found)


def _parameters(found: griffe.Function) -> str:
    shown: list[str] = []
    star = False
    for parameter in found.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not star:
            shown.append("*")
            star = True
        marks = {"variadic positional": "*", "variadic keyword": "**"}
        mark = marks.get(kind.value if kind else "", "")
        star = star or mark == "*"
        text = f"{mark}{parameter.name}"
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not mark:
            text += f" = {parameter.default}"
        shown.append(text)
    return ", ".join(shown)


def _returned(found: griffe.Function) -> str:
    return f" -> {found.returns}" if found.returns and found.name != "__init__" else ""


def _text(found: griffe.Object) -> Iterator[str]:
    if found.docstring is not None:
        yield found.docstring.value.replace("``", "`")
        yield ""


def main() -> None:
    """Write the page, or with --check fail when it is not up to date."""
    text = reference()
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.read_text("utf-8") == text else "run python -m scripts.generate_api")
    TARGET.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
