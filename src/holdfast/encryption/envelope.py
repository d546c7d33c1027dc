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


class Envelope(msgspec.Struct, frozen=True):
    """Encrypted bytes and the id of the key that decrypts them."""

    key: str
    data: str


_decoder = msgspec.json.Decoder(Envelope)


def wrap(key_id: str, ciphertext: bytes) -> bytes:
    """Return an envelope around ciphertext."""
    return b'%s%s","data":"%s"}' % (PREFIX, key_id.encode(), base64.b64encode(ciphertext))


def unwrap(data: bytes) -> tuple[str, bytes] | None:
    """Return the key id and the ciphertext of an envelope; None for anything else."""
    if not data.startswith(PREFIX):
        return None
    try:
        envelope = _decoder.decode(data)
        return envelope.key, base64.b64decode(envelope.data, validate=True)
    except (msgspec.DecodeError, binascii.Error):
        return None


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
