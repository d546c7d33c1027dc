"""Writes src/holdfast/operations/sync.py, the operations for blocking code.

Each coroutine of ``JobOperations``, what it inherits, and ``Webhooks`` becomes a plain method
with the same signature and the first line of its docstring: ``python -m scripts.generate_sync``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/holdfast/operations/sync.py"
CONTROL_TARGET = ROOT / "src/holdfast/operations/sync_control.py"
HEAD = '''
"""The client operations for blocking code. Written by scripts/generate_sync.py."""

from __future__ import annotations

from collections.abc import Iterator
from holdfast.operations.background import Background, Home
from holdfast.operations.sync_control import SyncControl
from holdfast.store.connections import blocking
from holdfast.webhooks.registry import Webhooks
'''
OPERATIONS = '''
class SyncOperations(SyncControl):
    """What ``Holdfast`` offers, blocking; usable from any thread, safe after a fork.

    Opens its own connection to the store at the first call, except when the app is started
    over a store that lives in its process: then it works on the app's loop from other
    threads. ``close`` is optional.
    """

    @property
    def webhooks(self) -> SyncWebhooks:
        """Addresses to notify when jobs end: add, list, remove, rotate, deliveries, resend."""
        return SyncWebhooks(self._run, self._app.webhooks_over)
'''
WEBHOOKS = '''
class SyncWebhooks(Background[Webhooks]):
    """What ``Holdfast.webhooks`` offers, blocking."""
'''
CONTROL_HEAD = '''
"""What operators do, for blocking code. Written by scripts/generate_sync.py."""

from __future__ import annotations

from holdfast.operations.background import Background, BackgroundOperations
'''
CONTROL = '''
class SyncControl(BackgroundOperations):
    """What operators do with an app or a client, blocking."""

    @property
    def schedules(self) -> SyncSchedules:
        """Schedules of the code and dynamic ones: list, create, change, pause, run, delete."""
        return SyncSchedules(self._run, lambda operations: operations.schedules)

    @property
    def bulk(self) -> SyncBulkOperations:
        """Operations on many jobs in the background: start, preview, list, get, cancel, wait."""
        return SyncBulkOperations(self._run, lambda operations: operations.bulk)
'''
SCHEDULES = '''
class SyncSchedules(Background[Schedules]):
    """What ``Holdfast.schedules`` offers, blocking."""
'''
BULK = '''
class SyncBulkOperations(Background[BulkOperations]):
    """What ``Holdfast.bulk`` offers, blocking."""
'''
Method = ast.FunctionDef | ast.AsyncFunctionDef


def generated() -> str:
    """Return the text of the module."""
    interface, registry = _parsed("operations.interface"), _parsed("webhooks.registry")
    oversight = _parsed("operations.oversight")
    methods = [*_methods(interface, "JobOperations"), *_methods(oversight, "OversightOperations")]
    classes = [
        OPERATIONS,
        *(_method(method, _same_body(method)) for method in methods),
        WEBHOOKS,
        *(_method(method, [_forward(method)]) for method in _methods(registry, "Webhooks")),
    ]
    text = "\n".join(classes)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    own = [n.targets[0] for n in registry.body if isinstance(n, ast.Assign)]
    constants = ast.ImportFrom(
        "holdfast.webhooks.registry", [ast.alias(n.id) for n in own if isinstance(n, ast.Name)], 0
    )
    imports = [
        _import(n, used) for n in [*interface.body, *oversight.body, *registry.body, constants]
    ]
    exported = '__all__ = ["Home", "SyncOperations", "SyncWebhooks"]\n'
    module = "\n".join([HEAD.strip(), *imports, text, exported])
    return _ruff("format", text=_ruff("check", "--select=I", "--fix", text=module))


def generated_control() -> str:
    """Return the text of the module with the part of operators."""
    control, schedules = _parsed("operations.control"), _parsed("operations.schedules")
    bulk = _parsed("operations.bulk")
    classes = [
        CONTROL,
        *(_method(method, _same_body(method)) for method in _methods(control, "Control")),
        SCHEDULES,
        *(_method(method, [_forward(method)]) for method in _methods(schedules, "Schedules")),
        BULK,
        *(_method(method, [_forward(method)]) for method in _methods(bulk, "BulkOperations")),
    ]
    text = "\n".join(classes)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    own = [n.targets[0] for n in schedules.body if isinstance(n, ast.Assign)]
    constants = ast.ImportFrom(
        "holdfast.operations.schedules",
        [ast.alias(n.id) for n in own if isinstance(n, ast.Name)],
        0,
    )
    typed = ast.ImportFrom("holdfast.operations.bulk", [ast.alias("BulkOptions")], 0)
    parts = [*control.body, *schedules.body, constants, *bulk.body, typed]
    imports = [_import(n, used) for n in parts]
    exported = '__all__ = ["SyncBulkOperations", "SyncControl", "SyncSchedules"]\n'
    module = "\n".join([CONTROL_HEAD.strip(), *imports, text, exported])
    return _ruff("format", text=_ruff("check", "--select=I", "--fix", text=module))


def _parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / f"src/holdfast/{module.replace('.', '/')}.py").read_text("utf-8"))


def _methods(module: ast.Module, name: str) -> Iterator[Method]:
    (class_,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == name)
    for node in class_.body:
        if isinstance(node, Method) and not node.name.startswith("_") and not node.decorator_list:
            yield node


def _method(node: Method, body: list[str]) -> str:
    returns = ast.unparse(node.returns).replace("Async", "") if node.returns else "None"
    summary = (ast.get_docstring(node) or "").splitlines()[0]
    lines = [f'"""{summary}"""', *body]
    head = f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"
    return "\n".join(f"    {line}" for line in [head, *(f"    {line}" for line in lines)])


def _same_body(node: Method) -> list[str]:
    """Run what the coroutine awaits on the background loop."""
    body = [ast.unparse(statement) for statement in node.body[1:]]
    run = "_run" if isinstance(node, ast.AsyncFunctionDef) else "_iterate"
    called = re.compile(r"(?:await )?self\.operations\.(.*)")
    if node.name == "submit":  # it has a way without the background loop
        body[-1] = "return self._submit(submission, connection)"
    body = [called.sub(rf"self.{run}(lambda operations: operations.\1)", line) for line in body]
    takes_connection = any(argument.arg == "connection" for argument in node.args.kwonlyargs)
    return ["connection = blocking(connection)", *body] if takes_connection else body


def _forward(node: Method) -> str:
    """Call the coroutine of the same name."""
    given = [argument.arg for argument in node.args.args[1:]]
    given += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    given += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    call = f"self._run(lambda part: part.{node.name}({', '.join(given)}))"
    returns_nothing = node.returns is None or ast.unparse(node.returns) == "None"
    return call if returns_nothing else f"return {call}"


def _import(node: ast.stmt, used: set[str]) -> str:
    """Return an import statement with the names that the generated classes use."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return ""
    names = [alias for alias in node.names if (alias.asname or alias.name) in used]
    if not names:
        return ""
    if isinstance(node, ast.ImportFrom):
        return ast.unparse(ast.ImportFrom(node.module, names, node.level))
    return ast.unparse(ast.Import(names))


def _ruff(*command: str, text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(TARGET), "-"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(generated(), "utf-8")
    CONTROL_TARGET.write_text(generated_control(), "utf-8")
