"""Starting a fresh interpreter that inherits one socket and nothing else that is open."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

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
