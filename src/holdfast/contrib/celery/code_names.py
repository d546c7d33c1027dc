"""What names in code written for Celery stand for, as far as the code itself shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import timedelta

SUBMITTING = frozenset({"delay", "apply_async", "send_task", "AsyncResult"})
TASKS = frozenset({"task", "shared_task"})


class NamesOfCode:
    """The names of a module that stand for apps, tasks and results."""

    def __init__(self, tree: ast.Module) -> None:
        self._apps: set[str] = set()
        self._results: set[str] = set()
        self._tasks: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    self._assigned(name, call)
                case ast.FunctionDef():
                    if any(_called(each) in TASKS for each in node.decorator_list):
                        self._tasks.add(node.name)
                case ast.ImportFrom(module=str(module)) if module.split(".")[-1] == "tasks":
                    self._tasks.update(alias.asname or alias.name for alias in node.names)

    def is_app(self, node: ast.expr) -> bool:
        """Whether an expression is an app."""
        return isinstance(node, ast.Name) and node.id in self._apps

    def is_result(self, node: ast.expr) -> bool:
        """Whether an expression is the result of a task."""
        if isinstance(node, ast.Call):
            return _called(node) in SUBMITTING
        return isinstance(node, ast.Name) and node.id in self._results

    def is_task(self, node: ast.expr) -> bool:
        """Whether an expression is a task."""
        if isinstance(node, ast.Attribute):
            return isinstance(node.value, ast.Name) and node.value.id == "tasks"
        return isinstance(node, ast.Name) and node.id in self._tasks

    def _assigned(self, name: str, call: ast.Call) -> None:
        if _called(call) == "Celery":
            self._apps.add(name)
        if _called(call) in SUBMITTING:
            self._results.add(name)


def settings_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that ``config_from_object`` or ``config_source`` name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = node.args[:1] if _called(node) == "config_from_object" else []
            given += [each.value for each in node.keywords if each.arg == "config_source"]
            for each in given:
                if isinstance(name := constant(each), str):
                    yield name.partition(":")[0]


def constant(node: ast.expr) -> object:
    """Return the value of a literal; None when it is none."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def interval(node: ast.expr) -> float | timedelta | None:
    """Return the interval that a schedule is, in seconds or as ``timedelta(...)`` of literals."""
    if isinstance(node, ast.Call) and _called(node) == "timedelta":
        named = {each.arg: constant(each.value) for each in node.keywords}
        try:
            return timedelta(*map(constant, node.args), **named)  # type: ignore[arg-type]  # TypeError is caught
        except TypeError:
            return None
    value = constant(node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _called(node: ast.expr) -> str:
    """Return the last name of what a call calls, or of an expression."""
    function = node.func if isinstance(node, ast.Call) else node
    match function:
        case ast.Attribute():
            return function.attr
        case ast.Name():
            return function.id
    return ""
