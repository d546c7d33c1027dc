"""Runs operations on many jobs, a page of each in turn, under a lock for each.

The lock ends by itself when its process dies, and another process resumes. A process that was
frozen meanwhile writes nothing: the version of the record has changed, and ``as_of`` keeps its
page from being changed twice.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from msgspec.structs import replace

from holdfast.errors import StoreUnavailableError
from holdfast.model.bulk import BulkCounts, BulkOperation, BulkState
from holdfast.model.reserved import BULK_LOCK
from holdfast.observe import Observer
from holdfast.operations import bulk_records as records
from holdfast.operations.bulk_pages import BulkPages
from holdfast.operations.bulk_records import StoredBulk
from holdfast.store import Store
from holdfast.store.damage import described
from holdfast.store.tenants import TenantStore

EVERY = 1.0
"""Seconds between two looks for operations."""
PAUSE = 0.01
"""Seconds between two pages, in which others may write."""
TERM = timedelta(seconds=10)
"""How long an operation stays with a process that does not answer."""
TRIES = 5
"""Errors in a row after which an operation fails."""


class BulkRunner:
    """Runs the open operations of every namespace; any number of processes may do so."""

    name = "bulk"

    def __init__(self, store: Store, holder: str, observer: Observer) -> None:
        self._store = store
        self._holder = holder
        self._observer = observer
        self._errors = Counter[str]()

    async def once(self) -> float:
        """Change a page of each open operation; return how many seconds to wait."""
        worked = False
        for namespace in await records.namespaces(self._store):
            for operation_id in await records.open_ids(self._within(namespace)):
                worked = await self._turn(namespace, operation_id) or worked
        return PAUSE if worked else EVERY

    async def _turn(self, namespace: str, operation_id: str) -> bool:
        """Change one page of an operation; return whether there was something to do."""
        lock = f"{BULK_LOCK}{namespace}/{operation_id}"
        if not await self._store.lock(lock, self._holder, TERM):
            return False
        turn = _Turn(self._store, self._within(namespace))
        try:
            ended = await turn.take(operation_id)
            self._errors.pop(operation_id, None)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # such as a filter that this version refuses
            ended = await self._failed(turn, operation_id, error)
        if ended is not None:
            await self._store.lock(lock, self._holder, timedelta(0))
            await records.prune(self._within(namespace))
            self._report(namespace, ended)
        return True

    async def _failed(
        self, turn: _Turn, operation_id: str, error: Exception
    ) -> BulkOperation | None:
        self._errors[operation_id] += 1
        if self._errors[operation_id] < TRIES:
            return None
        del self._errors[operation_id]
        return await turn.give_up(operation_id, described(error))

    def _report(self, namespace: str, operation: BulkOperation) -> None:
        self._observer.emit(
            "bulk.ended",
            operation=operation.id,
            namespace=namespace,
            action=operation.action.value,
            state=operation.state.value,
            done=operation.done,
            skipped=operation.skipped,
            failed=operation.failed,
        )

    def _within(self, namespace: str) -> Store:
        return TenantStore(self._store, namespace) if namespace else self._store


class _Turn:
    """One page of one operation; ``home`` has its record."""

    def __init__(self, store: Store, home: Store) -> None:
        self._store = store
        self._home = home

    async def take(self, operation_id: str) -> BulkOperation | None:
        """Change the next page; return the operation if that was the last one."""
        stored, version = await records.read(self._home, operation_id)
        if stored is None or stored.operation.ended:
            await records.close(self._home, operation_id)
            return None
        pages = BulkPages(self._view(stored))
        resumed = stored.page is not None
        if stored.page is None:
            stored = await self._with_page(pages, stored)
            written = await records.write(self._home, stored, version)
            if written is None:
                return None  # it was cancelled, or another process runs it
            version = written
        counts = await pages.change(stored.operation, stored.page or (), resumed=resumed)
        return await self._record(stored, version, counts)

    async def _with_page(self, pages: BulkPages, stored: StoredBulk) -> StoredBulk:
        found = await pages.following(stored)
        now = self._store.now()
        operation = replace(
            stored.operation,
            state=BulkState.RUNNING,
            started_at=stored.operation.started_at or now,
            updated_at=now,
        )
        return replace(
            stored,
            operation=operation,
            page=found.ids,
            cursor=found.cursor,
            is_last=found.is_last,
        )

    async def _record(
        self, stored: StoredBulk, version: int, counts: BulkCounts
    ) -> BulkOperation | None:
        now = self._store.now()
        operation = stored.operation.after(counts, now=now)
        if stored.is_last:
            operation = operation.finished(BulkState.COMPLETED, now=now)
        done = replace(stored, operation=operation, page=None)
        if await records.write(self._home, done, version) is None:
            await self._record_cancelled(stored, version, counts)
            return None
        return operation if stored.is_last else None

    async def _record_cancelled(self, stored: StoredBulk, version: int, counts: BulkCounts) -> None:
        """Add the counts of a page to an operation that was cancelled while the page changed."""
        now, newest = await records.read(self._home, stored.operation.id)
        if now is None or newest != version + 1 or now.operation.state is not BulkState.CANCELLED:
            return
        operation = now.operation.after(counts, now=self._store.now())
        await records.write(self._home, replace(now, operation=operation, page=None), newest)

    async def give_up(self, operation_id: str, error: str) -> BulkOperation | None:
        """End an operation with an error."""
        stored, version = await records.read(self._home, operation_id)
        if stored is None or stored.operation.ended:
            return None
        failed = stored.operation.finished(BulkState.FAILED, now=self._store.now(), error=error)
        await records.write(self._home, replace(stored, operation=failed), version)
        return failed

    def _view(self, stored: StoredBulk) -> Store:
        if stored.namespace is None:
            return self._store
        return TenantStore(self._store, stored.namespace)
