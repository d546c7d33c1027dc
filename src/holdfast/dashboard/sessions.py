"""Sessions of people who signed in with an API key: kept in the store, ended with the key.

The store holds a digest of the cookie's value, so that reading the store gives nobody a session.
A server keeps a session in memory for a moment: a page asks the store for it once in a while.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from holdfast.model.reserved import DASHBOARD_SESSIONS
from holdfast.model.times import Instant
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.store import RecordWrite, Store
from holdfast.store.damage import readable

IDLE = timedelta(hours=1)
LONGEST = timedelta(hours=12)
SEEN_EVERY = timedelta(minutes=1)
"""How exactly the last use of a session is recorded."""
REMEMBERED = 5.0
"""Seconds for which a server does not read a session again."""
MOST_REMEMBERED = 10_000


class LoginSession(msgspec.Struct, frozen=True, kw_only=True):
    """One login."""

    id: str
    """The digest of the secret in the cookie."""
    key_id: str
    created_at: Instant
    seen_at: Instant

    def has_ended(self, now: datetime) -> bool:
        """Whether it was idle for too long, or is too old."""
        return now - self.seen_at >= IDLE or now - self.created_at >= LONGEST


class Sessions:
    """The sessions of one store."""

    def __init__(self, store: Store, clock: Clock, randomness: Randomness) -> None:
        self._store = store
        self._clock = clock
        self._randomness = randomness
        self._known: OrderedDict[str, tuple[LoginSession, float]] = OrderedDict()

    async def begin(self, key_id: str) -> str:
        """Begin a session of a key; return the secret for its cookie."""
        await self._trim()
        secret = self._randomness.token() + self._randomness.token()
        now = self._store.now()
        session = LoginSession(id=_digest(secret), key_id=key_id, created_at=now, seen_at=now)
        await self._keep(session)
        return secret

    async def find(self, secret: str) -> LoginSession | None:
        """Return the session of a cookie, unless it has ended, and note that it is in use."""
        if not secret or len(secret) > 128:
            return None
        session = await self._read(_digest(secret))
        now = self._store.now()
        if session is None or session.has_ended(now):
            return None
        if now - session.seen_at >= SEEN_EVERY:
            session = replace(session, seen_at=now)
            await self._keep(session)
        return session

    async def end(self, session: LoginSession) -> None:
        """End a session."""
        self._known.pop(session.id, None)
        await self._store.keep([RecordWrite(kind=DASHBOARD_SESSIONS, key=session.id, data=None)])

    def newest(self, session: LoginSession) -> LoginSession:
        """Return a session as this server knows it now."""
        known = self._known.get(session.id)
        return session if known is None else known[0]

    async def _read(self, id_: str) -> LoginSession | None:
        known = self._known.get(id_)
        if known is not None and self._clock.monotonic() - known[1] < REMEMBERED:
            return known[0]
        (record,) = await self._store.records(DASHBOARD_SESSIONS, [id_])
        found = next(iter(readable([record.data] if record else [], _decoder.decode)), None)
        if found is None:
            self._known.pop(id_, None)
        else:
            self._remember(found)
        return found

    async def _keep(self, session: LoginSession) -> None:
        data = msgspec.json.encode(session)
        await self._store.keep([RecordWrite(kind=DASHBOARD_SESSIONS, key=session.id, data=data)])
        self._remember(session)

    def _remember(self, session: LoginSession) -> None:
        self._known[session.id] = session, self._clock.monotonic()
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    async def _trim(self) -> None:
        """Delete sessions that have ended, and those that cannot be read."""
        now = self._store.now()
        page = await self._store.browse(DASHBOARD_SESSIONS, limit=1000)
        current = {s.id for s in readable(page, _of_record) if not s.has_ended(now)}
        old = [record.key for record in page if record.key not in current]
        if old:
            await self._store.keep(
                [RecordWrite(kind=DASHBOARD_SESSIONS, key=id_, data=None) for id_ in old]
            )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


_decoder = msgspec.json.Decoder(LoginSession)


def _of_record(record: object) -> LoginSession:
    return _decoder.decode(record.data)  # type: ignore[attr-defined]  # a Record
