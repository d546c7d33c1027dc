"""A directory with a store and an app, and two ways to run commands in it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import Holdfast
from holdfast.cli import cli
from holdfast.model.job import Job

APP = """
from holdfast import Holdfast, JobContext, PermanentError

app = Holdfast()


@app.task("greet", max_attempts=5)
async def greet(ctx: JobContext, name: str) -> str:
    await ctx.log("INFO", "greeting", name=name)
    return f"hello {name}"


@app.task("fail")
async def fail() -> None:
    raise PermanentError("it cannot be", code="NEVER")


@app.task("escape")
async def escape() -> None:
    raise PermanentError("\\x9b31m \\u202e", code="\\x1b[2J\\x9b\\u202e")


@app.task("other", queue="side")
def other() -> None: ...
"""


class Place:
    """A directory in which commands run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}/holdfast.db"

    def run(self, *args: str, stdin: str | bytes | None = None) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(cli, list(args), input=stdin, prog_name="holdfast")

    def json(self, *args: str) -> Any:
        """Run a command that must succeed and return the document it prints."""
        result = self.run(*args, "--json")
        assert 0 == result.exit_code, result.output
        assert 1 == len(result.stdout.strip().splitlines())
        return json.loads(result.stdout)

    def submit(self, *args: str) -> str:
        """Submit a job and return its id."""
        return str(self.json("submit", *args)["job_id"])

    def stored(self, *job_ids: str) -> list[Job]:
        """Return jobs as they are stored."""

        async def read() -> list[Job]:
            async with Holdfast(self.url) as app:
                return [job for job in await app.store.get(job_ids) if job]

        return asyncio.run(read())

    def work(self) -> None:
        """Run every ready job in a worker process."""
        done = self.process("worker", "jobs_here", "-Q", "default,side", "--burst")
        assert 0 == done.returncode, done.stderr

    def process(
        self, *args: str, stdin: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a new process."""
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            cwd=self.path,
            env=environment(**variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def environment(**more: str) -> dict[str, str]:
    """Return an environment without settings that finds this holdfast."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    return {**bare, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **more}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs_here.py").write_text(APP, "utf-8")
    place = Place(tmp_path)
    app = Holdfast(place.url)
    app.sync.queues()
    app.sync.close()
    yield place
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]  # a command that ran in this process passed it on to its app
