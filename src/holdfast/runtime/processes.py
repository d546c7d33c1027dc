"""Child processes and the parent process: starting, signalling, and waiting for their end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

LOOK_EVERY = 0.5
"""How often a process looks whether its parent still runs, in seconds: no event reports that."""

BOOT = "import sys; sys.path[:] = sys.argv[2].split({sep!r}); from {module} import main; main()"


def start(
    module: str, line: socket.socket, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run ``main`` of a module in a process, session and group of its own.

    It gets the variables of ``environment``, or those of this process.

    A new interpreter rather than a fork: this process has threads, and a forked one would
    inherit locks that are never released. It finds the modules that this process finds.
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
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Wait until a child that leads its own process group has ended; return its exit code.

    The rest of the group is killed first, while the unreaped child still reserves its number.
    """
    if hasattr(os, "pidfd_open"):
        await _readable(os.pidfd_open(process.pid))
    else:  # pragma: no cover  # other systems than Linux
        await _waited(process)
    signal_group(process, signal.SIGKILL)
    return process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a child and everything it started, if any of it still runs."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def described(code: int) -> str:
    """Describe an exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def on_parent_exit(call: Callable[[], object], parent: int | None = None) -> None:
    """Call a function, in a thread, when the process with this id is not the parent any more.

    Without an id it is the present parent.
    """
    watched = parent or os.getppid()
    threading.Thread(target=_watch, args=(watched, call), daemon=True).start()


def _watch(parent: int, call: Callable[[], object]) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    with contextlib.suppress(RuntimeError):  # a loop that is closed already takes no calls
        call()


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
