"""API keys: made once, shown once, kept only as a digest, found again in constant time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.model.payload import clean
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.store import RecordWrite, Store
from holdfast.store.tenants import NAMESPACE_RULE

KIND = "key"
FRESH = 1.0
"""How long a server trusts what it knows of the keys, in seconds: a revocation takes so long."""

_TOKEN = re.compile(r"hf_([0-9a-f]{12})_[0-9a-f]{64}", re.ASCII)
_NOBODY = hashlib.sha256(b"").hexdigest()


class Role(StrEnum):
    """What a key is for; see ``http.access`` for what each may do."""

    __hash__ = str.__hash__  # the one of enums is written in Python

    SUBMITTER = "submitter"
    WORKER = "worker"
    OBSERVER = "observer"
    OPERATOR = "operator"
    ADMIN = "admin"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a key."""

    id: str
    name: str
    role: Role
    namespace: str = ""
    digest: str
    """SHA-256 of the whole key: its 256 random bits need no slow hash."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate: int | None = None
    """How many requests per second; None: any number."""
    live_jobs: int | None = None
    """How many of its jobs may be unfinished at a time; None: any number."""

    def counts(self, now: datetime) -> bool:
        """Whether it may be used."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a new key is to be."""

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
            told = f"must match {NAMESPACE_RULE.pattern}, got {self.namespace!r:.60}"
            found.append(Fault("namespace", "INVALID", told))
        for field in ("rate", "live_jobs"):
            value = getattr(self, field)
            if value is not None and value < 1:
                found.append(Fault(field, "OUT_OF_RANGE", f"must be at least 1, got {value}"))
        return found


async def create_key(store: Store, terms: KeyTerms, randomness: Randomness) -> tuple[ApiKey, str]:
    """Keep a new key; return it with the secret that is shown this once."""
    if faults := terms.faults():
        raise ValidationError(faults)
    key_id = randomness.token()[:12]
    secret = f"hf_{key_id}_{randomness.token()}{randomness.token()}"
    key = ApiKey(
        **msgspec.structs.asdict(terms), id=key_id, digest=_digest(secret), created_at=store.now()
    )
    await store.keep([RecordWrite(kind=KIND, key=key.id, data=msgspec.json.encode(key), version=0)])
    return key, secret


async def list_keys(store: Store) -> list[ApiKey]:
    """Return every key there ever was, oldest first."""
    found: list[ApiKey] = []
    after = ""
    while page := await store.browse(KIND, after=after):
        found += [msgspec.json.decode(record.data, type=ApiKey) for record in page]
        after = page[-1].key
    return sorted(found, key=lambda key: (key.created_at, key.id))


async def revoke_key(store: Store, key_id: str) -> ApiKey:
    """Let a key count no more; NotFoundError when there is none."""
    while True:
        (record,) = await store.records(KIND, [key_id])
        if record is None:
            raise NotFoundError(key_id)
        key = msgspec.json.decode(record.data, type=ApiKey)
        if key.revoked_at is not None:
            return key
        revoked = msgspec.structs.replace(key, revoked_at=store.now())
        draft = RecordWrite(
            kind=KIND, key=key.id, data=msgspec.json.encode(revoked), version=record.version
        )
        if (await store.keep([draft]))[0] is not None:
            return revoked


class ApiKeys:
    """The keys as a server knows them, read anew every second."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the keys unless that was done just now."""
        async with self._reading:
            if not self.are_fresh:
                self._hold(await list_keys(self._store))

    @property
    def are_fresh(self) -> bool:
        """Whether the keys were read just now."""
        return self._clock.monotonic() - self._read_at < FRESH

    def _hold(self, keys: Sequence[ApiKey]) -> None:
        self._keys = {key.id: key for key in keys}
        self._read_at = self._clock.monotonic()

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever made: then nobody can have one."""
        return not self._keys

    def find(self, secret: str) -> ApiKey | None:
        """Return the key a secret belongs to, if it counts; as slow for any wrong one."""
        match = _TOKEN.fullmatch(secret)
        key = self._keys.get(match[1]) if match else None
        same = hmac.compare_digest(_digest(secret), key.digest if key else _NOBODY)
        return key if key is not None and same and key.counts(self._store.now()) else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
