"""The keys that encrypt what stores keep: AES-256-GCM, any number of keys by id.

The first key encrypts; all of them decrypt. To rotate, put a new key first and keep the old
ones until nothing is left that they encrypted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from holdfast.encryption.envelope import KEY_ID, unwrap, wrap, wrapped_size
from holdfast.errors import Fault, MissingExtraError, ValidationError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
KEYS_VARIABLE = "HOLDFAST_ENCRYPTION_KEYS"
FILE_VARIABLE = "HOLDFAST_ENCRYPTION_KEYS_FILE"


class KeyRing:
    """Keys by id; the first one encrypts.

    Ciphertext is bound to the job and the field it belongs to: moved elsewhere, it does not
    decrypt. ``repr`` shows the ids, never a key.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        faults = [fault for key_id, key in keys.items() if (fault := _fault(key_id, key))]
        if not keys:
            faults.append(Fault("keys", "REQUIRED", "must hold at least one key"))
        if faults:
            raise ValidationError(faults)
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingExtraError("crypto", "cryptography") from None
        self.ids = tuple(keys)
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        # The oldest by id: newer keys do not change it, so repeats are still recognised.
        self._digest_key = hmac.digest(keys[min(keys)], b"holdfast digest", "sha256")

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.ids)})"

    @staticmethod
    def generate(key_id: str) -> str:
        """Return a new key as ``id:base64``, the form that ``parse`` reads."""
        return f"{key_id}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``id:base64`` keys, separated by commas, spaces or line ends; # begins a comment."""
        bare = re.sub(r"#.*", "", text)
        keys: dict[str, bytes] = {}
        for part in re.split(r"[,\s]+", bare.strip()):
            key_id, _, encoded = part.partition(":")
            if key_id in keys:
                raise ValidationError([Fault("keys", "CONFLICT", f"must name {key_id!r} once")])
            try:
                keys[key_id] = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                keys[key_id] = b""
        return cls(keys)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read keys from a file that only its owner may read."""
        file = Path(path)
        try:
            mode = file.stat().st_mode
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValidationError(
                [Fault("keys_file", "INVALID", f"cannot be read: {error}")]
            ) from None
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            message = f"must be readable by its owner only: chmod 600 {file}"
            raise ValidationError([Fault("keys_file", "EXPOSED", message)])
        return cls.parse(text)

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read $HOLDFAST_ENCRYPTION_KEYS, or the file $HOLDFAST_ENCRYPTION_KEYS_FILE names."""
        text, path = os.environ.get(KEYS_VARIABLE), os.environ.get(FILE_VARIABLE)
        if text:
            return cls.parse(text)
        return cls.from_file(path) if path else None

    def encrypt(self, data: bytes, about: str) -> bytes:
        """Return data encrypted for one place; an envelope is returned as it is."""
        if unwrap(data) is not None:
            return data
        nonce = secrets.token_bytes(NONCE_BYTES)
        key_id = self.ids[0]
        return wrap(key_id, nonce + self._ciphers[key_id].encrypt(nonce, data, about.encode()))

    def encrypted_size(self, size: int) -> int:
        """Return how many bytes so many bytes have when they are encrypted."""
        return wrapped_size(self.ids[0], NONCE_BYTES + size + TAG_BYTES)

    def decrypt(self, data: bytes, about: str) -> bytes:
        """Return data encrypted for this place decrypted; without the key, the same object."""
        found = unwrap(data)
        if found is None or found[0] not in self._ciphers:
            return data
        from cryptography.exceptions import InvalidTag

        key_id, body = found
        nonce, ciphertext = body[:NONCE_BYTES], memoryview(body)[NONCE_BYTES:]
        try:
            return self._ciphers[key_id].decrypt(nonce, ciphertext, about.encode())
        except (InvalidTag, ValueError):
            return data

    def digest(self, digest: str) -> str:
        """Return a keyed digest, which reveals nothing about the payload without the key."""
        if not digest:
            return digest
        return hmac.new(self._digest_key, digest.encode(), hashlib.sha256).hexdigest()[:32]


def _fault(key_id: str, key: bytes) -> Fault | None:
    if not KEY_ID.fullmatch(key_id):
        return Fault("keys", "INVALID", f"must be named by {KEY_ID.pattern}, got {key_id!r:.60}")
    if len(key) != KEY_BYTES:
        message = f"must be {KEY_BYTES} bytes as base64: {key_id!r} is not"
        return Fault("keys", "INVALID", message)
    return None
