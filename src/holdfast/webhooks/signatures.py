"""Signatures of the Standard Webhooks scheme: HMAC-SHA-256 over id, time and body.

A message is signed with every secret of its webhook, so that a receiver may change to a new one
at any time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Sequence

from holdfast.errors import Fault, ValidationError

PREFIX = "whsec_"
FEWEST, MOST = 24, 64
"""Bytes of a secret."""


def new_secret() -> str:
    """Return a new random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def checked_secret(text: str) -> str:
    """Return a given secret; ValidationError when it is invalid."""
    try:
        size = len(_bytes(text))
    except (ValueError, binascii.Error):
        size = 0
    if not FEWEST <= size <= MOST:
        message = f"must be {PREFIX} and {FEWEST} to {MOST} bytes as base64"
        raise ValidationError([Fault("secret", "INVALID", message)])
    return text


def headers(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers with which a receiver verifies sender and time of a message."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{_signature(key, signed)}" for key in keys),
    }


def _signature(key: str, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(_bytes(key), signed, "sha256")).decode()


def _bytes(key: str) -> bytes:
    if not key.startswith(PREFIX):
        raise ValueError("no secret")
    return base64.b64decode(key.removeprefix(PREFIX), validate=True)
