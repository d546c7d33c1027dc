"""The static files: read once, with a hash of their content in the name, compressed in advance."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from importlib.resources import files

import msgspec

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(msgspec.Struct, frozen=True):
    """One file, as it is sent."""

    media_type: str
    body: bytes
    compressed: bytes


class StaticFiles:
    """All files of ``static``; an address with an old hash finds nothing."""

    def __init__(self, found: Mapping[str, bytes]) -> None:
        self.names: dict[str, str] = {}
        """The plain name -> the name with the hash."""
        self.files: dict[str, StaticFile] = {}
        for name, body in sorted(found.items()):
            stem, _, kind = name.rpartition(".")
            hashed = f"{stem}.{hashlib.sha256(body).hexdigest()[:12]}.{kind}"
            self.names[name] = hashed
            packed = gzip.compress(body, 9, mtime=0)
            self.files[hashed] = StaticFile(MEDIA_TYPES[kind], body, packed)


def load() -> StaticFiles:
    """Read the files of the package."""
    folder = files("holdfast.dashboard") / "static"
    return StaticFiles(
        {
            each.name: each.read_bytes()
            for each in folder.iterdir()
            if each.name.rpartition(".")[2] in MEDIA_TYPES
        }
    )
