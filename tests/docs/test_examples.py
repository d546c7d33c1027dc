"""Every example in the documentation runs, and prints what the page says.

A fence says what is to be done with its block: ``python file=NAME`` is written to a file,
``python example`` and ``sh example`` are run, and ``text output`` must be printed by the last
one. The blocks of a page share a directory and come in the order of the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.architecture import tree
from tests.cli.conftest import environment
from tests.processes import PIPE, running
from tests.servers import Postgres

FENCE = re.compile(r"^```(\w+) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if FENCE.search(page.read_text("utf-8"))]
SERVER = "DATABASE_URL"
"""Names a PostgreSQL server in the examples that need one."""
SHELL = """set -euo pipefail
stop() { for pid in $(jobs -p); do kill "$pid"; wait "$pid" || true; done; }
trap stop EXIT
"""

pytestmark = pytest.mark.slow


def _needs_server(page: Path) -> bool:
    return SERVER in page.read_text("utf-8")


@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if not _needs_server(page)])
def test_examples_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    _try(page, tmp_path)


@pytest.mark.postgres
@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if _needs_server(page)])
def test_examples_of_a_page_run_on_a_server_and_print_what_it_says(
    page: Path, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER, database)

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
    for language, use, text in FENCE.findall(page.read_text("utf-8")):
        match language, use:
            case "text", "output":
                missing = [line for line in text.splitlines() if line not in printed]
                assert [] == missing, printed
            case "python", "example":
                printed = _run(tmp_path, [sys.executable, "-c", text])
            case "sh", "example":
                printed = _run(tmp_path, ["bash", "-c", SHELL + text])
            case "python", _ if use.startswith("file="):
                (tmp_path / use.removeprefix("file=")).write_text(text, "utf-8")
            case _:
                pytest.fail(f"nobody knows what to do with {language} {use}")


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
    with running(
        command,
        cwd=folder,
        env=environment(PYTHONPATH=search, PATH=path, HOLDFAST_WORKER_GRACE="1", **store),
        stdout=PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        printed, _ = process.communicate(timeout=60)
    assert 0 == process.returncode, printed
    return printed
