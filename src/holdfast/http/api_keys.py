"""API keys: the secret is shown once, stored as a digest and compared in constant time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from holdfast.encryption.envelope import unwrap
from holdfast.errors import Fault, StoreError
from holdfast.model.payload import clean
from holdfast.model.reserved import API_KEYS
from holdfast.model.times import Instant
from holdfast.runtime.clock import Clock
from holdfast.store import Record, Store
from holdfast.store.browsing import every_record
from holdfast.store.tenants import NAMESPACE_RULE

MAX_AGE = 1.0
"""Seconds until a server reads the keys again: a revocation takes effect within this time."""

_TOKEN = re.compile(r"hf_([0-9a-f]{12})_[0-9a-f]{64}", re.ASCII)
_NO_DIGEST = hashlib.sha256(b"").hexdigest()


class Role(StrEnum):
    """What a key is for; ``http.permissions`` lists what each role may do."""

    __hash__ = str.__hash__  # that of enums is slow: it is written in Python

    SUBMITTER = "submitter"
    WORKER = "worker"
    OBSERVER = "observer"
    OPERATOR = "operator"
    ADMIN = "admin"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as it is stored."""

    id: str
    name: str
    role: Role
    namespace: str = ""
    digest: str
    """SHA-256 of the whole secret: its 256 random bits need no slow hash."""
    created_at: Instant
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    rate: int | None = None
    """Requests per second; None: no limit."""
    live_jobs: int | None = None
    """Unfinished jobs at a time; None: no limit."""

    def is_valid(self, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a new key."""

    name: str
    role: Role
    namespace: str = ""
    expires_at: datetime | None = None
    rate: int | None = None
    live_jobs: int | None = None

    def faults(self) -> list[Fault]:
        """Return every rule that is broken."""
        found = []
        if not 1 <= len(self.name) <= 128 or clean(self.name) != self.name:
            found.append(Fault("name", "INVALID", "must have 1 to 128 characters"))
        if self.namespace == "holdfast":
            found.append(Fault("namespace", "RESERVED", "must not be 'holdfast'"))
        elif self.namespace and not NAMESPACE_RULE.fullmatch(self.namespace):
            message = f"must match {NAMESPACE_RULE.pattern}, got {self.namespace!r:.60}"
            found.append(Fault("namespace", "INVALID", message))
        for field in ("rate", "live_jobs"):
            value = getattr(self, field)
            if value is not None and value < 1:
                found.append(Fault(field, "OUT_OF_RANGE", f"must be at least 1, got {value}"))
        return found


async def list_keys(store: Store) -> list[ApiKey]:
    """Return every key, also revoked ones, oldest first."""
    found = map(_read, await every_record(store, API_KEYS))
    return sorted(found, key=lambda key: (key.created_at, key.id))


def _read(record: Record) -> ApiKey:
    """Read a key; a damaged one is revoked, so that no store seems to have no keys."""
    if unwrap(record.data) is not None:
        raise StoreError(
            "the API keys are encrypted with a key that this process does not have:"
            " add it to $HOLDFAST_ENCRYPTION_KEYS"
        )
    try:
        return msgspec.json.decode(record.data, type=ApiKey)
    except (msgspec.DecodeError, UnicodeDecodeError):
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)
        return ApiKey(
            id=record.key,
            name="damaged",
            role=Role.OBSERVER,
            digest="",
            created_at=long_ago,
            revoked_at=long_ago,
        )


class ApiKeys:
    """The keys of a server, read again every second."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def refresh(self, max_age: float = MAX_AGE) -> None:
        """Read the keys unless they were read within the last ``max_age`` seconds."""
        async with self._reading:
            if self._clock.monotonic() - self._read_at >= max_age:
                keys = await list_keys(self._store)
                self._keys = {key.id: key for key in keys}
                self._read_at = self._clock.monotonic()

    @property
    def are_fresh(self) -> bool:
        """Whether the keys were read within the last second."""
        return self._clock.monotonic() - self._read_at < MAX_AGE

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever created."""
        return not self._keys

    def holds(self, key_id: str) -> bool:
        """Whether a key is valid; the empty id, a caller without a key, while there are none."""
        if not key_id:
            return self.is_empty
        key = self._keys.get(key_id)
        return key is not None and key.is_valid(self._store.now())

    def get(self, key_id: str) -> ApiKey | None:
        """Return a key by its id, valid or not."""
        return self._keys.get(key_id)

    def named(self, secret: str) -> ApiKey | None:
        """Return the key that a secret names, even if the secret is wrong or the key revoked."""
        match = _TOKEN.fullmatch(secret)
        return self._keys.get(match[1]) if match else None

    def find(self, secret: str) -> ApiKey | None:
        """Return the valid key of a secret; every wrong secret takes the same time."""
        key = self.named(secret)
        same = hmac.compare_digest(digest_of(secret), key.digest if key else _NO_DIGEST)
        return key if key is not None and same and key.is_valid(self._store.now()) else None


def digest_of(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
