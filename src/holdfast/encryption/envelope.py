"""The format of encrypted bytes: JSON, so that other clients of a store can carry it.

``{"$sealed":"v1","key":"2026-11","data":"<base64 of nonce and ciphertext>"}``. Recognising one
needs no key and no cryptography: a reader without either can report which key is missing.
"""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from holdfast.errors import PermanentError

KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
PREFIX = b'{"$sealed":"v1","key":"'
"""What every envelope starts with."""
DATA = b'","data":"'


class Envelope(msgspec.Struct, frozen=True):
    """Encrypted bytes and the id of the key that decrypts them."""

    key: str
    data: str


_decoder = msgspec.json.Decoder(Envelope)


def wrap(key_id: str, ciphertext: bytes) -> bytes:
    """Return an envelope around ciphertext."""
    parts = memoryview(ciphertext)
    text = [binascii.b2a_base64(parts[at : at + RAW], newline=False) for at in _steps(parts, RAW)]
    return b'%s%s%s%s"}' % (PREFIX, key_id.encode(), DATA, b"".join(text))


def wrapped_size(key_id: str, size: int) -> int:
    """Return the bytes of an envelope around so many bytes of ciphertext."""
    return len(wrap(key_id, b"")) + 4 * -(-size // 3)


def unwrap(data: bytes) -> tuple[str, bytes] | None:
    """Return the key id and the ciphertext of an envelope; None for anything else."""
    if not data.startswith(PREFIX):
        return None
    end = data.find(b'"', len(PREFIX))
    try:
        if data.startswith(DATA, end) and data.endswith(b'"}'):
            text = memoryview(data)[end + len(DATA) : -2]
            parts = [_decoded(text[at : at + CODED]) for at in _steps(text, CODED)]
            return data[len(PREFIX) : end].decode("ascii"), b"".join(parts)
    except ValueError:
        pass  # another client may have written the same JSON in another form
    try:
        envelope = _decoder.decode(data)
        return envelope.key, base64.b64decode(envelope.data, validate=True)
    except (msgspec.DecodeError, binascii.Error):
        return None


RAW = 3 * 65_536
CODED = 4 * 65_536
"""Bytes of a slice: other threads run between two of them, of 16 MiB as well."""


def _steps(data: memoryview, size: int) -> range:
    return range(0, len(data), size)


def _decoded(text: memoryview) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def require_decrypted(data: bytes | None, what: str) -> None:
    """Raise PermanentError, naming the key, when bytes are still encrypted."""
    if data is None or not data.startswith(PREFIX):
        return
    found = unwrap(data)
    if found is not None:
        raise PermanentError(
            f"{what} is encrypted with key {found[0]!r}: this process has no such key, or another"
            " one by that name; add it to the key ring and retry the job",
            code="KEY_MISSING",
        )
