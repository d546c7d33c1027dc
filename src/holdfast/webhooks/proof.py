"""Proof that holdfast itself made a delivery: only then is it signed and sent.

A program that writes jobs into a shared store could otherwise have any message signed with the
secrets of webhooks. The key of the proof is a record that no API returns.
"""

from __future__ import annotations

import hmac
import secrets

from msgspec.structs import replace

from holdfast.model.reserved import PROOF
from holdfast.store import RecordWrite, Store
from holdfast.webhooks.values import Message


class Proof:
    """Makes and checks the proof of messages, with a key that the store keeps."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key: bytes | None = None

    async def given(self, message: Message, namespace: str) -> Message:
        """Return a message with its proof."""
        return replace(message, proof=_made(await self._read_key(), message, namespace))

    async def holds(self, message: Message, namespace: str) -> bool:
        """Whether holdfast made a message, for this namespace."""
        expected = _made(await self._read_key(), message, namespace)
        return hmac.compare_digest(expected.encode(), message.proof.encode())

    async def _read_key(self) -> bytes:
        """Return the key; the first caller of a store makes it."""
        while self._key is None:
            (record,) = await self._store.records(PROOF, [PROOF])
            if record is not None:
                self._key = record.data
            else:
                new = RecordWrite(kind=PROOF, key=PROOF, data=secrets.token_bytes(32), version=0)
                await self._store.keep([new])
        return self._key


def _made(key: bytes, message: Message, namespace: str) -> str:
    parts = (namespace, message.webhook, message.message_id, message.url, message.body)
    signed = b"".join(b"%d:%s" % (len(part.encode()), part.encode()) for part in parts)
    return hmac.digest(key, signed, "sha256").hex()
