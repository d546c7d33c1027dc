"""A store that keeps job contents encrypted: any other store behind a key ring.

Contents are encrypted on the way in and decrypted on the way out. What no key decrypts comes
out encrypted and is refused where it would be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from msgspec.structs import replace

from holdfast.encryption.contents import Contents
from holdfast.encryption.key_ring import KeyRing
from holdfast.model.job import Job, LogLine, Transition
from holdfast.model.submission import Parent
from holdfast.runtime.off_loop import off_loop
from holdfast.store import (
    Added,
    Change,
    Claim,
    Dependent,
    EventPage,
    FailurePage,
    FailureSearch,
    Fence,
    JobNote,
    Page,
    Record,
    RecordWrite,
    Search,
    Store,
    Swapped,
    TransactionalStore,
)
from holdfast.store.proxy import StoreProxy


def encrypted(store: Store, keys: KeyRing | None) -> Store:
    """Return a store that keeps contents encrypted; without keys the store itself."""
    if keys is None:
        return store
    if isinstance(store, TransactionalStore):
        return EncryptedTransactionalStore(store, store, keys)
    return EncryptedStore(store, keys)


class EncryptedStore(StoreProxy):
    """Encrypts contents on their way into a store and decrypts them on their way out."""

    def __init__(self, inner: Store, keys: KeyRing) -> None:
        super().__init__(inner)
        self._contents = Contents(keys)
        self.capabilities = replace(inner.capabilities, encrypts=True)
        if size_fault := inner.capabilities.size_fault:
            self.capabilities = replace(
                self.capabilities,
                size_fault=lambda job, size: size_fault(*self._contents.sized(job, size)),
            )

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        return await self._inner.add(await self._encrypt(jobs), atomic=atomic, fence=fence)

    async def claim(self, want: Claim) -> list[Job]:
        return await self._decrypt(await self._inner.claim(want))

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        size = sum(len(change.after.result or b"") for change in changes)
        encrypt = self._contents.encrypt_change
        after = await off_loop(size, lambda: [encrypt(change.after) for change in changes])
        writes = [replace(c, after=each) for c, each in zip(changes, after, strict=True)]
        return await self._answers(await self._inner.swap(writes))

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        return await self._answers(await self._inner.amend(changes))

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        size = sum(len(note.checkpoint or b"") for note in notes)
        encrypt = self._contents.encrypt_note
        return await self._inner.note(await off_loop(size, lambda: [encrypt(n) for n in notes]))

    async def overdue(self, limit: int) -> list[Job]:
        return [self._contents.decrypt_job(job) for job in await self._inner.overdue(limit)]

    async def dependents(self, limit: int) -> list[Dependent]:
        found = await self._inner.dependents(limit)
        return [replace(each, job=self._contents.decrypt_job(each.job)) for each in found]

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        found = await self._inner.get(ids)
        decrypted = iter(await self._decrypt([job for job in found if job is not None]))
        return [None if job is None else next(decrypted) for job in found]

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        histories = await self._inner.history(ids)
        return [
            [self._contents.decrypt_transition(each, job_id) for each in history]
            for job_id, history in zip(ids, histories, strict=True)
        ]

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        decrypt = self._contents.decrypt_line
        return [
            [decrypt(line, job_id) for line in lines]
            for job_id, lines in zip(ids, await self._inner.logs(ids), strict=True)
        ]

    async def find(self, search: Search) -> Page:
        page = await self._inner.find(search)
        return replace(page, jobs=tuple(await self._decrypt(page.jobs)))

    async def failures(self, search: FailureSearch) -> FailurePage:
        page = await self._inner.failures(search)
        return replace(page, jobs=tuple(await self._decrypt(page.jobs)))

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        page = await self._inner.events(after, limit, wait)
        return replace(page, events=tuple(map(self._contents.decrypt_event, page.events)))

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        return await self._inner.keep([self._contents.encrypt_record(write) for write in writes])

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        found = await self._inner.records(kind, keys)
        return [
            None if record is None else self._contents.decrypt_record(record) for record in found
        ]

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        found = await self._inner.browse(kind, prefix=prefix, after=after, limit=limit, last=last)
        return [self._contents.decrypt_record(record) for record in found]

    async def _encrypt(self, jobs: Sequence[Job]) -> list[Job]:
        encrypt = self._contents.encrypt_job
        return await off_loop(_size(jobs), lambda: [encrypt(job) for job in jobs])

    async def _decrypt(self, jobs: Sequence[Job]) -> list[Job]:
        decrypt = self._contents.decrypt_job
        return await off_loop(_size(jobs), lambda: [decrypt(job) for job in jobs])

    async def _answers(self, answers: Sequence[Swapped]) -> list[Swapped]:
        decrypted = iter(await self._decrypt([a.job for a in answers if a.job is not None]))
        return [a if a.job is None else replace(a, job=next(decrypted)) for a in answers]


def _size(jobs: Sequence[Job]) -> int:
    """How many bytes of jobs are encrypted or decrypted, without their texts."""
    return sum(len(j.payload) + len(j.result or b"") + len(j.checkpoint or b"") for j in jobs)


class EncryptedTransactionalStore(EncryptedStore):
    """An encrypted store that joins transactions of callers and handlers."""

    def __init__(self, inner: Store, transactional: TransactionalStore, keys: KeyRing) -> None:
        super().__init__(inner, keys)
        self._transactional = transactional

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,
    ) -> list[Added]:
        """Write new jobs, encrypted, if and only if the caller's transaction commits."""
        return await self._transactional.add(
            await self._encrypt(jobs), atomic=atomic, fence=fence, connection=connection
        )

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        """Return what new jobs inherit from their dependencies, as the caller sees these."""
        return await self._transactional.lineage(ids, connection)

    def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Lend a connection whose commit also writes, encrypted, what ``decide`` decides."""
        contents = self._contents
        return self._transactional.transaction(
            fence,
            lambda job: contents.encrypt_change(decide(contents.decrypt_job(job))),
            blocking=blocking,
        )
