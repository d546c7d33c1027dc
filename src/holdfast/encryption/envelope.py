"""How sealed bytes look: JSON in every store, so that other readers of the wire can carry it.

``{"$sealed":"v1","key":"2026-11","data":"<base64 of nonce and ciphertext>"}``. Knowing one
needs no key and no cryptography, so that a reader without either can say what is missing.
"""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from holdfast.errors import PermanentError

KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_OPENING = b'{"$sealed":"v1","key":"'


class Envelope(msgspec.Struct, frozen=True):
    """Sealed bytes and the id of the key that opens them."""

    key: str
    data: str


_decoder = msgspec.json.Decoder(Envelope)


def wrap(key_id: str, sealed: bytes) -> bytes:
    """Return an envelope around ciphertext."""
    return b'%s%s","data":"%s"}' % (_OPENING, key_id.encode(), base64.b64encode(sealed))


def unwrap(data: bytes) -> tuple[str, bytes] | None:
    """Return the key id and the ciphertext of an envelope; None for anything else."""
    if not data.startswith(_OPENING):
        return None
    try:
        envelope = _decoder.decode(data)
        return envelope.key, base64.b64decode(envelope.data, validate=True)
    except (msgspec.DecodeError, binascii.Error):
        return None


def must_be_open(data: bytes | None, what: str) -> None:
    """Raise PermanentError, naming the key, when bytes are still sealed."""
    if data is None or not data.startswith(_OPENING):
        return
    found = unwrap(data)
    if found is not None:
        raise PermanentError(
            f"{what} is sealed with key {found[0]!r}: this process has no such key, or another"
            " one by that name; add it to the key ring and retry the job",
            code="KEY_MISSING",
        )
