"""Waking those in this process who wait for work or for news."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.store.sqlite.threads import emit


class Interest(StrEnum):
    """What someone waits for."""

    WORK = "work"
    """A job that may be claimed now, or will be due."""
    NEWS = "news"
    """Any event."""


class LocalBell:
    """Numbers that move when there may be work, and the waiters to be woken then.

    ``ring`` may be called in any thread; waiters may sit on any event loop.
    """

    def __init__(self) -> None:
        self.rung: Counter[Interest] = Counter()
        """How often it rang for whom."""
        self._work: Counter[str | None] = Counter()
        self._waiting: dict[Interest, set[asyncio.Future[None]]] = {i: set() for i in Interest}

    def count(self, queues: Sequence[str]) -> int:
        """Return a number that moves when one of these queues may have work."""
        return self._work[None] + sum(self._work[queue] for queue in queues)

    def ring(self, queues: Iterable[str | None], *, news: bool) -> None:
        """Tell that there may be work in these queues (None: in all), or other news."""
        rung = list(queues)
        self._work.update(rung)
        if rung:
            self._wake(Interest.WORK)
        if news:
            self._wake(Interest.NEWS)

    def _wake(self, interest: Interest) -> None:
        self.rung[interest] += 1
        for future in list(self._waiting[interest]):
            emit(future.get_loop(), _end, future)

    async def wait(self, interest: Interest, rung: int, seconds: float) -> bool:
        """Wait until it rang more often than that; False when the time is over first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[interest].add(future)
        try:
            if self.rung[interest] != rung:
                return True
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting[interest].discard(future)
        return True


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


Heard = Callable[[list[str | None]], None]

MAX_MESSAGE = 1024
_EVERY_QUEUE = b"[null]"
_LONGEST_BASE = 40
"""A socket's path must fit in about 100 bytes, with our own part of it 50."""


class Herald:
    """The sockets on which this process hears others, and one to tell them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._mouth = _socket()
        self._ears: dict[Interest, tuple[socket.socket, asyncio.AbstractEventLoop]] = {}
        self._seen = -1
        self._peers: dict[Interest, list[str]] = {}

    @classmethod
    def of(cls, database: Path, name: str) -> Herald | None:
        """Return the herald of a file; None where processes can only poll."""
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

    def listen(self, interest: Interest, heard: Heard) -> None:
        """Have messages of a kind told on the running event loop."""
        loop = asyncio.get_running_loop()
        if interest in self._ears:
            ear, before = self._ears[interest]
            if before is loop:
                return
            if not before.is_closed():
                before.remove_reader(ear)
        else:
            ear = _socket()
            try:
                ear.bind(os.fspath(self._own(interest)))
            except OSError:
                ear.close()
                return
        try:
            loop.add_reader(ear, _receive, ear, heard)
        except NotImplementedError:
            ear.close()
        else:
            self._ears[interest] = (ear, loop)

    def emit(self, queues: Iterable[str | None], *, news: bool) -> None:
        """Send every peer what it is interested in; never waits."""
        peers = self._listed()
        names = list(queues)
        if names and peers[Interest.WORK]:
            message = msgspec.json.encode(names)
            if None in names or len(message) > MAX_MESSAGE:
                message = _EVERY_QUEUE
            self._send(message, peers[Interest.WORK])
        if news and peers[Interest.NEWS]:
            self._send(b"[]", peers[Interest.NEWS])

    def close(self) -> None:
        """Take the sockets away."""
        for interest, (ear, loop) in self._ears.items():
            if not loop.is_closed():
                loop.remove_reader(ear)
            ear.close()
            with contextlib.suppress(OSError):
                self._own(interest).unlink()
        self._ears.clear()
        self._mouth.close()
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def abandon(self) -> None:
        """Let go of the sockets in a forked child; they belong to the parent."""
        for ear, _ in self._ears.values():
            ear.close()
        self._ears.clear()
        self._mouth.close()

    def _own(self, interest: Interest) -> Path:
        return self._folder / f"{self._name}.{interest}"

    def _listed(self) -> dict[Interest, list[str]]:
        """The peers' sockets, read again when the directory changed."""
        try:
            changed = self._folder.stat().st_mtime_ns
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
                self._mouth.sendto(message, peer)
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    Path(peer).unlink()  # its process died
            except OSError:
                continue  # gone, or slow to read: it polls


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def _receive(ear: socket.socket, heard: Heard) -> None:
    queues: set[str | None] = set()
    with contextlib.suppress(OSError):
        while True:
            queues.update(_read(ear.recv(MAX_MESSAGE + 1)))
    heard(list(queues))


def _read(message: bytes) -> list[str | None]:
    try:
        return msgspec.json.decode(message, type=list[str | None])
    except msgspec.MsgspecError:
        return [None]


def _private_folder() -> Path | None:
    """Return the directory of this user's sockets, unless someone else could look into it."""
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
