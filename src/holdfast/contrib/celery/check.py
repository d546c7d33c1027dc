"""Reads code written for Celery and lists what does not carry over; it runs none of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.contrib import celery
from holdfast.contrib.celery import conf, options
from holdfast.contrib.celery.app import BACKEND
from holdfast.contrib.celery.code_names import NamesOfCode, constant, interval, settings_modules
from holdfast.contrib.celery.exceptions import UnsupportedError
from holdfast.contrib.celery.request import CeleryRequest
from holdfast.contrib.celery.schedules import expression_of
from holdfast.contrib.celery.task import OPTIONS

OURS = celery.__name__
"""Code that was moved already is read as well."""

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
    "map": "submit a group",
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
TASK_ONLY = frozenset({"map"})
"""Methods with names so common that only a task counts: of the file, or of a module ``tasks``."""

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
    trees: dict[Path, ast.Module] = {}
    for path in files:
        try:
            trees[path] = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as error:
            found.append(CeleryFinding(str(path), 1, f"cannot be read: {error}", "mend the file"))
    using = {path: tree for path, tree in trees.items() if _uses_celery(tree)}
    configured = {name for tree in using.values() for name in settings_modules(tree)}
    for path, tree in trees.items():
        lines: list[CeleryFinding] = []
        if path in using:
            lines += _CodeReader(str(path)).read(tree)
        if any(_is_module(path, name) for name in configured):
            lines += _CodeReader(str(path)).settings(tree)
        found += sorted(dict.fromkeys(lines), key=lambda finding: finding.line)
    return found, len(using)


def _uses_celery(tree: ast.Module) -> bool:
    known = {"celery", "kombu", "django_celery_beat", "django_celery_results"}
    return any(
        name.split(".")[0] in known or name.startswith(OURS)
        for node in ast.walk(tree)
        for name in _imported(node)
    )


def _is_module(path: Path, name: str) -> bool:
    """Whether a file is the module of a name, wherever the root of the search is."""
    parts = tuple(name.split("."))
    own = (*path.parts[:-1], path.stem)
    return own[-len(parts) :] == parts


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
        self._names = NamesOfCode(ast.Module([], []))

    def read(self, tree: ast.Module) -> Iterator[CeleryFinding]:
        """Yield what code that uses Celery has that does not carry over."""
        self._names = NamesOfCode(tree)
        for node in ast.walk(tree):
            yield from self._imports(node)
            match node:
                case ast.Attribute(ctx=ast.Load()):
                    yield from self._attribute(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from self._function(node)
                case ast.Call():
                    yield from self._call(node)
                case ast.Assign(targets=[ast.Attribute() as target]) if _is_conf(target.value):
                    yield from self._setting(node, target.attr, node.value)

    def settings(self, tree: ast.Module) -> Iterator[CeleryFinding]:
        """Yield the settings of a module that ``config_from_object`` names."""
        for node in tree.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    name = target.id if isinstance(target, ast.Name) else ""
                    if name in conf.KNOWN:
                        yield from self._setting(node, name, node.value)

    def _attribute(self, node: ast.Attribute) -> Iterator[CeleryFinding]:
        owner = node.value
        if node.attr == "children" and self._names.is_result(owner):
            yield self._finding(node, "children of a result", "read app.holdfast.graph(id)")
        if node.attr == "backend" and self._names.is_app(owner):
            yield self._finding(node, "app.backend", BACKEND)
        match owner:
            case ast.Attribute(attr="request", value=ast.Name(id="self")) if (
                not hasattr(CeleryRequest, node.attr)
                and node.attr not in CeleryRequest.__dataclass_fields__
            ):
                yield self._finding(
                    node, f"self.request.{node.attr}", "see self.request in the table of tasks"
                )

    def _imports(self, node: ast.AST) -> Iterator[CeleryFinding]:
        for module in _imported(node):
            for refused, instead in MODULES.items():
                if module == refused or module.startswith(f"{refused}."):
                    yield self._finding(node, f"import of {module}", instead)
        if isinstance(node, ast.ImportFrom) and "celery" in {
            n.split(".")[0] for n in _imported(node)
        }:
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
        if isinstance(node.func, ast.Attribute):
            yield from self._method(node, name, node.func.value)
        if name == "apply_async":
            yield from self._keywords(node, _CALL, "the option")
        if name == "Celery":
            for keyword in node.keywords:
                if keyword.arg == "broker":
                    yield from self._setting(node, "broker_url", keyword.value)

    def _method(self, node: ast.Call, name: str, owner: ast.expr) -> Iterator[CeleryFinding]:
        is_refused = {
            **dict.fromkeys(SELF_ONLY, isinstance(owner, ast.Name) and owner.id == "self"),
            **dict.fromkeys(TASK_ONLY, self._names.is_task(owner)),
        }
        if name in METHODS and is_refused.get(name, True):
            yield self._finding(node, f"{name}()", METHODS[name])
        if name == "update" and _is_conf(owner):
            for keyword in node.keywords:
                yield from self._setting(node, keyword.arg or "", keyword.value)
        if name == "inspect" and "control" in ast.dump(owner):
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

    def _setting(self, node: ast.AST, name: str, value: ast.expr) -> Iterator[CeleryFinding]:
        name = conf.OLD_NAMES.get(name, name)
        if name == "beat_schedule":
            yield from self._intervals(value)
        given = constant(value)
        if name in conf.ONLY and given is not None and given not in conf.ONLY[name]:
            yield self._finding(node, f"{name}={given!r:.60}", "payloads and results are JSON")
        if name == "broker_url" and (scheme := conf.broker_scheme(given)) in conf.NOT_STORES:
            yield self._finding(node, f"a broker of {scheme}", conf.STORES)
        if name and name not in {*conf.READ, *conf.ONLY, *conf.ALWAYS_SO}:
            yield self._finding(
                node, f"the setting {name}", conf.INSTEAD.get(name, "see the table of settings")
            )

    def _intervals(self, beat: ast.expr) -> Iterator[CeleryFinding]:
        """Yield the schedules whose interval does not divide a minute, an hour or a day."""
        for node in ast.walk(beat):
            if not isinstance(node, ast.Dict):
                continue
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and constant(key) == "schedule":
                    try:
                        if (every := interval(value)) is not None:
                            expression_of(every)
                    except UnsupportedError as error:
                        yield self._finding(value, error.what, error.instead)

    def _finding(self, node: ast.AST, what: str, instead: str) -> CeleryFinding:
        return CeleryFinding(self._path, getattr(node, "lineno", 1), what, instead)


_PACKAGES = frozenset(
    {
        "celery.canvas",
        "celery.exceptions",
        "celery.result",
        "celery.schedules",
        "celery.utils",
    }
)
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
