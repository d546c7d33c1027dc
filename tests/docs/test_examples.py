"""Every example in the documentation runs, and prints what the page says.

A fence says what to do: ``python file=NAME`` is written, ``python example`` and ``sh example`` run,
``python cell`` runs after the cells before it. ``text output`` is all that the last one prints:
``...`` stands for any lines; ids, times and durations may differ.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.architecture import tree
from tests.cli.conftest import environment
from tests.processes import PIPE, running
from tests.servers import Postgres, Valkey

FENCE = re.compile(r"^```(\w+) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if FENCE.search(page.read_text("utf-8"))]
SERVER = "DATABASE_URL"
"""Names a PostgreSQL server in the examples that need one."""
REDIS = "REDIS_URL"
"""Names a Redis server."""
OMITTED = "..."
VARYING = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "DURATION"),
    (re.compile(r"\bhf_[\w-]+"), "KEY"),
]
NOTEBOOK = """
import ast, asyncio, contextlib, inspect, io, sys

async def run(cell, names):
    *lines, last = ast.parse(cell).body
    if isinstance(last, ast.Expr):
        shown = ast.Assign([ast.Name("_", ast.Store())], last.value)
        last = ast.fix_missing_locations(ast.copy_location(shown, last))
    module = ast.Module([*lines, last], [])
    running = eval(compile(module, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(running):
        await running
    if names.get("_") is not None:
        print(names["_"])
    names["_"] = None

async def main(*cells):
    names = {}
    for cell in cells[:-1]:
        with contextlib.redirect_stdout(io.StringIO()):
            await run(cell, names)
    await run(cells[-1], names)
    if stack := names.get("stack"):
        await stack.aclose()

asyncio.run(main(*sys.argv[1:]))
"""
"""Runs cells as a notebook does: in a running loop, and shows the value of the last line."""

pytestmark = pytest.mark.slow


def _needs_server(page: Path) -> bool:
    return SERVER in page.read_text("utf-8")


def _needs_redis(page: Path) -> bool:
    return REDIS in page.read_text("utf-8")


PLAIN = [page for page in WITH_EXAMPLES if not _needs_server(page) and not _needs_redis(page)]


@pytest.mark.parametrize("page", PLAIN)
def test_examples_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    _try(page, tmp_path)


@pytest.mark.postgres
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if _needs_server(page)])
def test_examples_of_a_page_run_on_a_server_and_print_what_it_says(
    page: Path, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER, database)

    _try(page, tmp_path)


@pytest.mark.redis
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if _needs_redis(page)])
def test_examples_of_a_page_run_on_redis_and_print_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Valkey() as server:
        monkeypatch.setenv(REDIS, server.url)

        _try(page, tmp_path)


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    """An empty database."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE documented")
        yield urlsplit(postgres_server.dsn)._replace(path="/documented").geturl()
        connection.execute("DROP DATABASE documented WITH (FORCE)")


def _try(page: Path, tmp_path: Path) -> None:
    _command(tmp_path)
    printed = ""
    cells: list[str] = []
    for language, use, text in FENCE.findall(page.read_text("utf-8")):
        match language, use:
            case "text", "output":
                assert _pattern(text).fullmatch(_masked(printed)), printed
            case "python", "example":
                printed = _run(tmp_path, [sys.executable, "-c", text])
            case "python", "cell":
                cells.append(text)
                printed = _run(tmp_path, [sys.executable, "-c", NOTEBOOK, *cells])
            case "sh", "example":
                printed = _run(tmp_path, ["bash", "-euo", "pipefail", "-c", text])
            case "python", _ if use.startswith("file="):
                (tmp_path / use.removeprefix("file=")).write_text(text, "utf-8")
            case _:
                pytest.fail(f"nobody knows what to do with {language} {use}")


def _masked(text: str) -> str:
    for varying, name in VARYING:
        text = varying.sub(name, text)
    return text


def _pattern(text: str) -> re.Pattern[str]:
    """Return what matches a whole output."""
    lines = _masked(text).splitlines(keepends=True)
    return re.compile(
        "".join(r"(?:.*\n)*" if line.strip() == OMITTED else re.escape(line) for line in lines)
    )


@pytest.mark.parametrize(
    ("documented", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("in 5 ms at 2026-01-02 03:04:05\n", "in 1.5 s at 2025-11-12T13:14:15.16Z\n", True),
    ],
)
def test_output_is_compared_as_a_whole(documented: str, printed: str, *, same: bool) -> None:
    assert same == bool(_pattern(documented).fullmatch(_masked(printed)))


def test_readme_has_an_example_that_is_run() -> None:
    uses = {use for _, use, _ in FENCE.findall((tree.ROOT / "README.md").read_text("utf-8"))}

    assert {"file=shop.py", "example", "output"} == uses


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))

    local = [link for link in links if "://" not in link]
    assert [] == [link for link in local if not (page.parent / link).exists()]


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (tree.ROOT / "README.md").read_text("utf-8")

    assert [] == [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in readme]


def _command(folder: Path) -> None:
    """Put commands of this holdfast where a shell finds them first."""
    for name, module in (("holdfast", "-m holdfast"), ("python", "")):
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n', "utf-8")
        path.chmod(0o755)


def _run(folder: Path, command: list[str]) -> str:
    search = os.pathsep.join([str(folder), str(tree.PACKAGE.parent)])
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    store = {"HOLDFAST_URL": url} if (url := os.environ.get(SERVER)) else {}
    store |= {REDIS: url} if (url := os.environ.get(REDIS)) else {}
    with running(
        command,
        cwd=folder,
        env=environment(PYTHONPATH=search, PATH=path, HOLDFAST_WORKER_GRACE="1", **store),
        stdout=PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        printed, _ = process.communicate(timeout=60)
        assert 0 == process.returncode, printed
        _await_end(process.pid)
    return printed


def _await_end(group: int) -> None:
    """Wait until the processes that an example started have ended, as it must make them do."""
    deadline = time.monotonic() + 10
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "the example leaves a process behind"
        time.sleep(0.05)  # another process ends in its own time
