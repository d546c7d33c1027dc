"""The path and options of the database file, and checks of its filesystem.

``sqlite:///jobs.db`` is relative, ``sqlite:////var/lib/jobs.db`` absolute.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.errors import StoreError, StoreUnavailableError, UnsafeStoreError
from holdfast.store.contract import EVENTS_KEPT

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_FILESYSTEMS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "vboxsf"),
        *("fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)


class Durability(StrEnum):
    """What an acknowledged write survives."""

    FULL = "full"
    """Power loss."""
    PROCESS = "process"
    """The end of any process, but not power loss."""


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A database file and its options."""

    path: Path
    durability: Durability = Durability.FULL
    any_filesystem: bool = False
    events_kept: int = EVENTS_KEPT

    @classmethod
    def from_url(cls, url: str) -> Location:
        """Parse a URL; refuse unknown options."""
        parts = urlsplit(url)
        if parts.netloc:
            raise StoreError(
                f"{url!r} names a host: write sqlite:///jobs.db (relative)"
                " or sqlite:////var/lib/jobs.db (absolute)"
            )
        path = unquote(parts.path)[1:]
        if path in ("", ":memory:"):
            raise StoreError(
                f"{url!r} names no file: jobs in memory do not survive the process,"
                " use memory:// for tests or sqlite:///jobs.db"
            )
        if "\x00" in path:
            raise StoreError(f"{url!r:.60} names a file with a NUL in its name")
        return cls(path=Path(path), **_options(url, parts.query))  # type: ignore[arg-type]  # read by _OPTIONS

    def check(self, filesystem_of: Callable[[Path], str]) -> None:
        """Refuse a path that cannot be written, or a filesystem that may lose writes."""
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise StoreError(f"cannot open {self.path}: the directory {folder} does not exist")
        if self.path.is_dir():
            raise StoreError(f"cannot open {self.path}: it is a directory")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(f"cannot open {self.path}: the directory {folder} is not writable")
        if self.path.exists() and not os.access(self.path, os.R_OK | os.W_OK):
            raise StoreError(f"cannot open {self.path}: the file is not readable and writable")
        filesystem = filesystem_of(folder)
        if filesystem in NETWORK_FILESYSTEMS and not self.any_filesystem:
            raise UnsafeStoreError(
                f"{self.path} is on a network filesystem ({filesystem}), where SQLite's locks"
                " may not work and jobs could be lost: use a local disk, or accept the risk"
                " with ?filesystem=any"
            )

    def create(self) -> None:
        """Create the file, readable by this user only; SQLite gives its log the same mode.

        An existing file is not opened: closing any descriptor of it would release the locks
        of every connection of this process, and another process could then assume that it is
        the last one and delete the log in use. A log without its file belongs to one that was
        moved away: SQLite would delete the log together with the jobs in it.
        """
        log = Path(os.path.realpath(self.path) + "-wal")
        if log.exists():
            if not self.path.exists():
                raise StoreUnavailableError(
                    f"{self.path} is missing, but its log {log} is there: the file was deleted or"
                    " moved; put it back, or delete the log to start with an empty store"
                )
            return
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise StoreError(f"cannot open {self.path}: {error.strerror}") from error


def filesystem_of(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the filesystem type of a folder; empty where it is not known."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    found, longest = "", -1
    real = folder.resolve()
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4].replace("\\040", " "))
        if real.is_relative_to(mount) and len(mount.parts) >= longest:
            found, longest = after.split()[0], len(mount.parts)
    return found


def _options(url: str, query: str) -> dict[str, object]:
    options: dict[str, object] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            known = ", ".join(sorted(_OPTIONS))
            raise StoreError(f"{url!r}: unknown option {name!r}, known are {known}")
        field, read = _OPTIONS[name]
        options[field] = read(value)
    return options


def _durability(value: str) -> Durability:
    if value not in set(Durability):
        raise UnsafeStoreError(
            f"durability must be full (survives power loss) or process (survives the end of"
            f" processes, not power loss), got {value!r}"
        )
    return Durability(value)


def _filesystem(value: str) -> bool:
    if value not in ("any", "local"):
        raise StoreError(f"filesystem must be local or any, got {value!r}")
    return value == "any"


def _events_kept(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 10 and 1 <= int(value) <= 10**9):
        raise StoreError(f"events_kept must be a number from 1 to a billion, got {value!r}")
    return int(value)


_OPTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "durability": ("durability", _durability),
    "filesystem": ("any_filesystem", _filesystem),
    "events_kept": ("events_kept", _events_kept),
}
