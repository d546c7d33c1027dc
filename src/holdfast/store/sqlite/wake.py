"""Wakes callers that wait for work or events, in this process and in others.

Processes send each other messages over Unix sockets; where there are none, they poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.store.sqlite.threads import call_on


class Interest(StrEnum):
    """What a caller waits for."""

    WORK = "work"
    """A job that may be claimed now, or will be due."""
    EVENTS = "news"  # also the name of a socket: other versions know it
    """Any event."""


class LocalWake:
    """Wakes the waiters of this process, and counts how often.

    ``wake`` may be called in any thread; waiters may be on any event loop.
    """

    def __init__(self) -> None:
        self.wakes: Counter[Interest] = Counter()
        """How often waiters were woken."""
        self._work: Counter[str | None] = Counter()
        self._waiting: dict[Interest, dict[asyncio.Future[None], object]] = {
            interest: {} for interest in Interest
        }
        self._lock = threading.Lock()

    def count(self, queues: Sequence[str]) -> int:
        """Return a number that changes when one of these queues may have work."""
        return self._work[None] + sum(self._work[queue] for queue in queues)

    def wake(self, queues: Iterable[str | None], *, events: bool) -> None:
        """Wake those that wait for work in these queues (None: in any), or for events."""
        names = list(queues)
        with self._lock:
            for name in names:
                self._work[name] += 1
            if names:
                self.wakes[Interest.WORK] += 1
            if events:
                self.wakes[Interest.EVENTS] += 1
        if names and (waiting := self._waiting[Interest.WORK]):
            _end_all(waiting.copy())
        if events and (waiting := self._waiting[Interest.EVENTS]):
            _end_all(waiting.copy())

    def end(self, owner: object) -> None:
        """End the waits of an owner."""
        for waiting in self._waiting.values():
            _end_all(future for future, its in waiting.copy().items() if its is owner)

    async def wait(self, interest: Interest, wakes: int, seconds: float, owner: object) -> bool:
        """Wait until ``wakes`` differs from that; False after so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[interest][future] = owner
        try:
            if self.wakes[interest] != wakes:
                return True
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[interest][future]
        return True


def _end_all(futures: Iterable[asyncio.Future[None]]) -> None:
    """End waits, with one call for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for future in futures:
        loops.setdefault(future.get_loop(), []).append(future)
    for loop, own in loops.items():
        call_on(loop, _end, own)


def _end(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


OnMessage = Callable[[list[str | None]], None]

MAX_MESSAGE = 1024
_EVERY_QUEUE = b"[null]"
_LONGEST_BASE = 40
"""A socket's path must fit in about 100 bytes; what follows the base takes 50."""


class SocketWake:
    """Sockets to receive messages of other processes, and one to send."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._folder_name = os.fspath(folder)
        self._name = name
        self._sender = _socket()
        self._receivers: dict[Interest, tuple[socket.socket, asyncio.AbstractEventLoop]] = {}
        self._lock = threading.Lock()
        self._seen = -1
        self._peers: dict[Interest, list[str]] = {}

    @classmethod
    def of(cls, database: Path, name: str) -> SocketWake | None:
        """Return the sockets for a file; None where processes can only poll."""
        if not hasattr(socket, "AF_UNIX"):
            return None
        digest = hashlib.blake2b(os.fsencode(database.resolve()), digest_size=8).hexdigest()
        folder = _private_folder()
        if folder is None:
            return None
        try:
            (folder / digest).mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return None
        return cls(folder / digest, name)

    def listen(self, interest: Interest, on_message: OnMessage) -> None:
        """Receive messages of a kind on the running event loop, or on another that runs."""
        loop = asyncio.get_running_loop()
        _, before = self._receivers.get(interest, (None, None))
        if before is not loop and (before is None or not before.is_running()):
            with self._lock:
                self._listen_on(loop, interest, on_message)

    def _listen_on(
        self, loop: asyncio.AbstractEventLoop, interest: Interest, on_message: OnMessage
    ) -> None:
        receiver, before = self._receivers.get(interest, (None, None))
        if receiver is None:
            receiver = self._receiver(interest)
        elif before is not None and before.is_running():
            return  # another thread was faster
        elif before is not None and not before.is_closed():
            before.remove_reader(receiver)
        if receiver is not None:
            try:
                loop.add_reader(receiver, _receive, receiver, on_message)
            except NotImplementedError:
                receiver.close()
            else:
                self._receivers[interest] = (receiver, loop)

    def _receiver(self, interest: Interest) -> socket.socket | None:
        receiver = _socket()
        try:
            receiver.bind(os.fspath(self._own(interest)))
        except OSError:
            receiver.close()
            return None
        return receiver

    def send(self, queues: Iterable[str | None], *, events: bool) -> None:
        """Send every process what it listens for; never waits."""
        peers = self._listed()
        names = list(queues)
        if names and peers[Interest.WORK]:
            message = msgspec.json.encode(names)
            if None in names or len(message) > MAX_MESSAGE:
                message = _EVERY_QUEUE
            self._send(message, peers[Interest.WORK])
        if events and peers[Interest.EVENTS]:
            self._send(b"[]", peers[Interest.EVENTS])

    def close(self) -> None:
        """Close and delete the sockets of this process."""
        for interest, (receiver, loop) in self._receivers.items():
            _stop_listening(receiver, loop)
            with contextlib.suppress(OSError):
                self._own(interest).unlink()
        self._receivers.clear()
        self._sender.close()
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def abandon(self) -> None:
        """Close the sockets in a forked child; the files belong to the parent."""
        for receiver, _ in self._receivers.values():
            receiver.close()
        self._receivers.clear()
        self._sender.close()

    def _own(self, interest: Interest) -> Path:
        return self._folder / f"{self._name}.{interest}"

    def _listed(self) -> dict[Interest, list[str]]:
        """Return the sockets of other processes; list them again when the directory changed."""
        try:
            changed = os.stat(self._folder_name).st_mtime_ns  # noqa: PTH116  # at every commit
            if changed != self._seen:
                others = [p for p in self._folder.iterdir() if p.stem != self._name]
                self._peers = {
                    i: [os.fspath(p) for p in others if p.suffix == f".{i}"] for i in Interest
                }
                self._seen = changed
        except OSError:
            return {interest: [] for interest in Interest}
        return self._peers

    def _send(self, message: bytes, peers: Iterable[str]) -> None:
        for peer in peers:
            try:
                self._sender.sendto(message, peer)
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    Path(peer).unlink()  # its process is dead
            except OSError:
                continue  # deleted, or slow to read: that process polls


def _stop_listening(receiver: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    """Close a receiver; one of a loop in another thread is closed by that loop."""

    def stop() -> None:
        loop.remove_reader(receiver)
        receiver.close()

    if loop.is_closed():
        receiver.close()
    elif loop.is_running() and loop is not asyncio.get_running_loop():
        call_on(loop, stop)
    else:
        stop()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def _receive(receiver: socket.socket, on_message: OnMessage) -> None:
    queues: set[str | None] = set()
    with contextlib.suppress(OSError):
        while True:
            queues.update(_read(receiver.recv(MAX_MESSAGE + 1)))
    on_message(list(queues))


def _read(message: bytes) -> list[str | None]:
    try:
        return msgspec.json.decode(message, type=list[str | None])
    except msgspec.MsgspecError:
        return [None]


def _private_folder() -> Path | None:
    """Return the directory of this user's sockets; None if other users can access it."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    if len(os.fsencode(base)) > _LONGEST_BASE:
        base = Path("/tmp")  # noqa: S108  # owner and mode are checked
    folder = base / f"holdfast-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if own and not found.st_mode & 0o077 else None
