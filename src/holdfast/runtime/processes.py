"""Hearing on the event loop that a child process ended, and ending what it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Wait until a child that leads its own process group has ended; return its exit code.

    Whatever else is left of the group is killed first, while the unreaped child still
    reserves its number.
    """
    if hasattr(os, "pidfd_open"):
        await _readable(os.pidfd_open(process.pid))
    else:  # pragma: no cover  # other systems than Linux
        await _waited(process)
    signal_group(process, signal.SIGKILL)
    return process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a child and everything it started, if any of it is still there."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def described(code: int) -> str:
    """Say how a process ended, for people."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def _waited(process: subprocess.Popen[bytes]) -> None:  # pragma: no cover
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def wait() -> None:
        process.wait()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait, daemon=True).start()
    await over.wait()


BOOT = "import sys; sys.path[:] = sys.argv[2].split({sep!r}); from {module} import main; main()"


def start(module: str, line: socket.socket) -> subprocess.Popen[bytes]:
    """Run ``main`` of a module in a process, session and group of its own.

    A new interpreter rather than a fork: this process has threads, and a forked one would
    inherit locks nobody opens. It finds the modules that this process finds.
    """
    return subprocess.Popen(  # noqa: S603  # our own interpreter and module
        [
            sys.executable,
            "-c",
            BOOT.format(sep=os.pathsep, module=module),
            str(line.fileno()),
            os.pathsep.join(sys.path),
        ],
        pass_fds=(line.fileno(),),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
