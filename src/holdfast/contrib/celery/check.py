"""Reads code written for Celery and lists what does not carry over; it runs none of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.contrib import celery
from holdfast.contrib.celery import conf, options
from holdfast.contrib.celery.task import OPTIONS

NAMES = frozenset({*celery.__all__, "TimeoutError"})
"""What may be imported from Celery's modules."""

MODULES = {
    "celery.signals": "middleware (app.holdfast.middleware) surrounds submissions and attempts",
    "celery.bin": "the command line is holdfast",
    "celery.bootsteps": "there are no bootsteps; app.holdfast.lifespan opens resources",
    "celery.events": "read app.holdfast.events(), or GET /api/v1/events",
    "celery.contrib": "see the pages on testing and on Django",
    "celery.backends": "results are stored with the job",
    "celery.worker": "holdfast worker runs the tasks",
    "celery.concurrency": "choose a runner per task: thread or process",
    "kombu": "queues need no declaration; payloads are JSON",
    "billiard": "use multiprocessing, or runner='process' of a task",
    "django_celery_beat": "schedules are edited with holdfast schedules, over HTTP and in code",
    "django_celery_results": "results are stored with the job: holdfast jobs",
}

METHODS = {
    "add_to_chord": "spawn jobs with ctx.spawn in a task of holdfast",
    "chunks": "submit a group of tasks that each take a list",
    "collect": "read app.holdfast.graph(id)",
    "iterdeps": "read app.holdfast.graph(id)",
    "starmap": "submit a group",
    "get_leaf": "read app.holdfast.graph(id)",
    "replace": "spawn jobs with ctx.spawn and ctx.wait_for_children in a task of holdfast",
    "start_strategy": "there is none",
    "worker_main": "run: holdfast worker MODULE:APP",
}
SELF_ONLY = frozenset({"replace"})
"""Methods with names so common that only ``self`` counts."""

DECORATORS = frozenset({"task", "shared_task", "periodic_task"})


class CeleryFinding(msgspec.Struct, frozen=True):
    """Something in the code that does not carry over, and what to use instead."""

    path: str
    line: int
    what: str
    instead: str


def check(root: Path) -> tuple[list[CeleryFinding], int]:
    """Return what does not carry over in a file or a package, and how many files use Celery."""
    files = sorted(root.rglob("*.py")) if root.is_dir() else [root]
    found: list[CeleryFinding] = []
    using = 0
    for path in files:
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as error:
            found.append(CeleryFinding(str(path), 1, f"cannot be read: {error}", "mend the file"))
            continue
        if not _uses_celery(tree):
            continue
        using += 1
        found += sorted(_CodeReader(str(path)).read(tree), key=lambda finding: finding.line)
    return found, using


def _uses_celery(tree: ast.Module) -> bool:
    return any(
        name.split(".")[0] in {"celery", "kombu", "django_celery_beat", "django_celery_results"}
        for node in ast.walk(tree)
        for name in _imported(node)
    )


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
    return []


class _CodeReader:
    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, tree: ast.Module) -> Iterator[CeleryFinding]:
        for node in ast.walk(tree):
            yield from self._imports(node)
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from self._function(node)
                case ast.Call():
                    yield from self._call(node)
                case ast.Assign(targets=[ast.Attribute() as target]) if _is_conf(target.value):
                    yield from self._setting(node, target.attr)

    def _imports(self, node: ast.AST) -> Iterator[CeleryFinding]:
        for module in _imported(node):
            for refused, instead in MODULES.items():
                if module == refused or module.startswith(f"{refused}."):
                    yield self._finding(node, f"import of {module}", instead)
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "celery":
            if any(str(node.module).startswith(refused) for refused in MODULES):
                return
            for alias in node.names:
                if alias.name not in NAMES and f"celery.{alias.name}" not in _PACKAGES:
                    yield self._finding(
                        node, f"import of {alias.name}", "it has no counterpart: see the page"
                    )

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[CeleryFinding]:
        for decorator in node.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if _last_name(call) not in DECORATORS:
                continue
            if isinstance(node, ast.AsyncFunctionDef):
                yield self._finding(node, "a coroutine as a task", "use @app.task of Holdfast")
            if isinstance(decorator, ast.Call):
                yield from self._keywords(decorator, _TASK, "the task option")

    def _call(self, node: ast.Call) -> Iterator[CeleryFinding]:
        name = _last_name(node.func)
        if name in METHODS and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if name not in SELF_ONLY or (isinstance(owner, ast.Name) and owner.id == "self"):
                yield self._finding(node, f"{name}()", METHODS[name])
        if name == "apply_async":
            yield from self._keywords(node, _CALL, "the option")
        if name == "update" and isinstance(node.func, ast.Attribute) and _is_conf(node.func.value):
            for keyword in node.keywords:
                yield from self._setting(node, keyword.arg or "")
        if name == "inspect" and "control" in ast.dump(node.func):
            yield self._finding(node, "control.inspect()", "use holdfast workers, or app.workers()")

    def _keywords(
        self, call: ast.Call, instead: Mapping[str, str], what: str
    ) -> Iterator[CeleryFinding]:
        for keyword in call.keywords:
            name = keyword.arg or ""
            if name in instead:
                yield self._finding(call, f"{what} {name}", instead[name])
            elif name == "serializer" and not _is_json(keyword.value):
                yield self._finding(call, "a serializer other than json", "payloads are JSON")
            elif what == "the task option" and name and name not in _KNOWN_OPTIONS:
                yield self._finding(call, f"{what} {name}", "see the table of options")

    def _setting(self, node: ast.AST, name: str) -> Iterator[CeleryFinding]:
        name = conf.OLD_NAMES.get(name, name)
        if name and name not in {*conf.READ, *conf.ONLY, *conf.ALWAYS_SO}:
            yield self._finding(
                node, f"the setting {name}", conf.INSTEAD.get(name, "see the table of settings")
            )

    def _finding(self, node: ast.AST, what: str, instead: str) -> CeleryFinding:
        return CeleryFinding(self._path, getattr(node, "lineno", 1), what, instead)


_PACKAGES = frozenset({"celery.exceptions", "celery.result", "celery.schedules", "celery.canvas"})
_TASK = options.NO_TASK
_CALL = options.NO_CALL
_KNOWN_OPTIONS = {*OPTIONS, *options.TASK_NO_EFFECT, "name", "bind", "base", "serializer"}


def _is_conf(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "conf"


def _is_json(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "json"


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Attribute():
            return node.attr
        case ast.Name():
            return node.id
    return ""
