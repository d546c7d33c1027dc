"""Creates and revokes API keys; the audit log of their namespace records both."""

from __future__ import annotations

import msgspec

from holdfast.api.responses import AuditEntry
from holdfast.errors import NotFoundError, ValidationError
from holdfast.http.api_keys import ApiKey, KeyTerms, digest_of
from holdfast.http.audit import audit_write
from holdfast.model.reserved import API_KEYS
from holdfast.runtime.randomness import Randomness
from holdfast.store import RecordWrite, Store
from holdfast.store.tenants import TenantStore


class Actor(msgspec.Struct, frozen=True):
    """Who changes keys from the command line, for the audit log."""

    user: str = ""
    host: str = ""


async def create_key(
    store: Store, terms: KeyTerms, randomness: Randomness, actor: Actor | None = None
) -> tuple[ApiKey, str]:
    """Store a new key; return it with its secret, which cannot be read again."""
    if faults := terms.faults():
        raise ValidationError(faults)
    key_id = randomness.token()[:12]
    secret = f"hf_{key_id}_{randomness.token()}{randomness.token()}"
    key = ApiKey(
        **msgspec.structs.asdict(terms), id=key_id, digest=digest_of(secret), created_at=store.now()
    )
    await _record(store, "createKey", key, actor)
    await store.keep([_write(key, version=0)])
    return key, secret


async def revoke_key(store: Store, key_id: str, actor: Actor | None = None) -> ApiKey:
    """Revoke a key; NotFoundError when it does not exist."""
    while True:
        (record,) = await store.records(API_KEYS, [key_id])
        if record is None:
            raise NotFoundError(key_id, "API key")
        key = msgspec.json.decode(record.data, type=ApiKey)
        if key.revoked_at is not None:
            return key
        revoked = msgspec.structs.replace(key, revoked_at=store.now())
        if (await store.keep([_write(revoked, version=record.version)]))[0] is not None:
            await _record(store, "revokeKey", revoked, actor)
            return revoked


def _write(key: ApiKey, version: int) -> RecordWrite:
    return RecordWrite(kind=API_KEYS, key=key.id, data=msgspec.json.encode(key), version=version)


async def _record(store: Store, action: str, key: ApiKey, actor: Actor | None) -> None:
    actor = actor or Actor()
    entry = AuditEntry(
        timestamp=store.now(),
        request_id=key.id,
        key_id="",
        key_name=actor.user,
        role="",
        namespace=key.namespace,
        action=action,
        target=key.id,
        detail=f"{key.role} {key.name}",
        client=actor.host,
        status=200,
    )
    await TenantStore(store, key.namespace).keep([audit_write(entry)])
