"""Kill -9 at every system call of submit, claim and settle on SQLite."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Self

import pytest

from tests.architecture import tree
from tests.conformance.hand import make
from tests.store import victim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.model.job import Job, Transition

Picture = list[tuple["Job | None", list["Transition"]]]

CHANGING = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink", "openat", "close")
LOCKING = ("fcntl", "mmap", "munmap", "pread64", "newfstatat", "fstat", "lseek", "access")
MOST = {"fcntl": 40, "pread64": 20}
"""Calls that change nothing are many and alike: the first of them are enough."""


def _reason_to_skip() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"strace may not trace here: {tried.stderr!r:.200}"


class Victims:
    """Starts victims, traced."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(tree.ROOT / "src"), str(tree.ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.victim"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=10)
        finally:
            self._process.kill()
            self._process.wait()

    def run(self, folder: Path, *options: str) -> str:
        """Run a victim in a folder under strace; return the trace."""
        assert self._process.stdin
        assert self._process.stdout
        print(folder, file=self._process.stdin, flush=True)
        pid = int(self._process.stdout.readline())
        log = folder / "strace"
        with subprocess.Popen(
            ["strace", "-o", str(log), *options, "-p", str(pid)], stderr=subprocess.PIPE, text=True
        ) as strace:
            assert strace.stderr
            assert "attached" in strace.stderr.readline()
            os.kill(pid, signal.SIGCONT)
            strace.stderr.read()
        return log.read_text("utf-8", "replace")


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    if reason := _reason_to_skip():
        pytest.skip(f"no system call can be chosen: {reason}")
    with Victims() as victims:
        yield victims


async def _picture(folder: Path) -> Picture:
    async with victim.opened(folder) as store:
        ids = [make(label, now=store.now()).id for label in ("first", "second")]
        return list(zip(await store.get(ids), await store.history(ids), strict=True))


async def _pictures(folder: Path) -> list[Picture]:
    """Return the contents before and after each call."""
    pictures = [await _picture(folder)]
    for call in victim.CALLS:
        async with victim.opened(folder) as store:
            await call(store)
        pictures.append(await _picture(folder))
    return pictures


def _integrity(folder: Path) -> str:
    plain = sqlite3.connect(folder / victim.DATABASE)
    (result,) = plain.execute("PRAGMA integrity_check").fetchone()
    plain.close()
    return str(result)


def _folders(parent: Path, *names: str) -> list[Path]:
    folders = [parent / name for name in names]
    for folder in folders:
        folder.mkdir()
    return folders


@pytest.mark.req("S-1", "S-2", "S-12")
@pytest.mark.slow
async def test_killed_at_any_system_call_nothing_acknowledged_is_lost(
    victims: Victims, tmp_path: Path
) -> None:
    model, fresh = _folders(tmp_path, "model", "fresh")
    pictures = await _pictures(model)
    assert pictures[0] == await _picture(fresh)
    counted = tmp_path / "counted"
    shutil.copytree(fresh, counted)
    calls = Counter(re.findall(r"^(\w+)\(", victims.run(counted), re.MULTILINE))
    where: Counter[tuple[int, bool]] = Counter()

    for name in (*CHANGING, *LOCKING):
        for when in range(1, min(calls[name], MOST.get(name, 200)) + 1):
            folder = tmp_path / "killed"
            shutil.copytree(fresh, folder)
            seen = victims.run(folder, "-e", f"inject={name}:signal=SIGKILL:when={when}")
            assert "killed by SIGKILL" in seen

            file = folder / victim.ACKNOWLEDGED
            acknowledged = len(file.read_bytes()) if file.exists() else 0
            found = await _picture(folder)
            place = f"{name} number {when}, {acknowledged} calls acknowledged"
            assert found in pictures[acknowledged : acknowledged + 2], place
            where[acknowledged, found != pictures[acknowledged]] += 1
            async with victim.opened(folder) as store:  # the next process can continue
                for call in victim.CALLS[acknowledged:]:
                    await call(store)
            assert pictures[-1] == await _picture(folder), place
            assert "ok" == _integrity(folder), place
            shutil.rmtree(folder)

    print(f"killed at {sum(where.values())} system calls: {dict(where)}")
    assert calls["pwrite64"] > 10
    assert sum(where.values()) >= 60
    assert {0, 1, 2} <= {
        acknowledged for acknowledged, _ in where
    }  # before each of the three was acknowledged
    assert any(ahead for _, ahead in where)  # and between the commit and the answer
