"""The record that marks a store as encrypted, so that a process without the keys finds out first.

It is encrypted with the newest key that encrypts, and contains the id of that key. Payloads cannot
serve as the mark: any submitter can send one that looks encrypted.
"""

from __future__ import annotations

import contextlib

from holdfast.encryption.envelope import unwrap
from holdfast.encryption.key_ring import FILE_VARIABLE, KEYS_VARIABLE, KeyRing
from holdfast.errors import StoreError
from holdfast.model.reserved import ENCRYPTION
from holdfast.store import RecordWrite, Store

_KEY = "newest"


async def mark_encrypted(store: Store, keys: KeyRing | None) -> None:
    """Mark a store as encrypted; a mark of a newer or unknown key stays."""
    if keys is None:
        return
    (found,) = await store.records(ENCRYPTION, [_KEY])
    newest = keys.ids[0].encode()
    if found is not None and (unwrap(found.data) is not None or found.data >= newest):
        return
    version = 0 if found is None else found.version
    with contextlib.suppress(StoreError):  # a role that only reads; another process marks it
        write = RecordWrite(kind=ENCRYPTION, key=_KEY, data=newest, version=version)
        await store.keep([write])


async def require_keys(store: Store) -> None:
    """Raise StoreError, naming what to set, when the store is encrypted with an unknown key."""
    (found,) = await store.records(ENCRYPTION, [_KEY])
    sealed = None if found is None else unwrap(found.data)
    if sealed is not None:
        raise StoreError(
            f"the store is encrypted with key {sealed[0]!r}: this process has no such key, or"
            f" another one by that name; set ${KEYS_VARIABLE} or ${FILE_VARIABLE}"
        )
