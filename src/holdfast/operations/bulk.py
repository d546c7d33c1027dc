"""Operations on many jobs that run in the background: started, watched and cancelled by id."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict, Unpack, cast

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, NotFoundError, QuotaError, ValidationError
from holdfast.model.bulk import (
    OPTIONS,
    BulkAction,
    BulkOperation,
    BulkPreview,
    BulkState,
)
from holdfast.model.job import Priority
from holdfast.model.payload import clean
from holdfast.model.times import Moment, Span, parse_timestamp, shown
from holdfast.model.validation import MAX_KEY
from holdfast.operations import bulk_records as records
from holdfast.operations.batches import check_batch_filter
from holdfast.operations.bulk_pages import BulkPages, search_of
from holdfast.operations.changes import priority_level, read_span
from holdfast.operations.filters import JobFilter, job_search, must_select_once
from holdfast.operations.matching import predicate
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from holdfast.store.tenants import TenantStore

MOST_IDS = 1000
MOST_PAGE = 200
MOST_FILTER = 65_536
"""Bytes of a filter."""
EXAMPLES = 5
MOST_COMPARED = 1000
"""Jobs that a preview counts by reading them."""
POLL = 0.25
"""Seconds between two looks of a caller that waits."""


class BulkOptions(TypedDict, total=False):
    """What an action does with each job."""

    reason: str
    """Of cancel; recorded in the history of each job."""
    force: bool
    """Of cancel: interrupt running jobs."""
    reset_attempts: bool
    """Of retry: count attempts anew."""
    priority: Priority | str | int | None
    """Of retry and reprioritise."""
    delay: Span
    """Of retry: how long each job waits."""


class BulkOperations:
    """Operations on many jobs of a store, or of one namespace.

    A worker or a service runs them, in pages of 500 jobs. They survive the process that runs
    them: another one resumes where it was.
    """

    def __init__(self, store: Store, randomness: Randomness | None = None) -> None:
        self._store = store
        self._randomness = randomness or Randomness()

    async def start(
        self,
        action: BulkAction | str,
        *,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        ids: Sequence[str] | None = None,
        as_of: Moment | None = None,
        dry_run: bool = False,
        by: str = "",
        **options: Unpack[BulkOptions],
    ) -> BulkOperation:
        """Start to cancel, retry, delete, reprioritise or release many jobs, by filter or ids.

        Jobs that match or change after ``as_of``, by default now, are not touched. ``reason`` and
        ``force`` are for cancel, ``reset_attempts``, ``priority`` and ``delay`` for retry,
        ``priority`` for reprioritise. A dry run only counts. ``by`` is recorded. QuotaError when
        20 operations have not ended.
        """
        doing = _action(action)
        given = _options(doing, options)
        preview = await self.preview(doing, filter=filter, ids=ids, as_of=as_of)
        await self._check_quota()
        now = self._store.now()
        operation = BulkOperation(
            id=self._new_id(now),
            action=doing,
            filter=None if filter is None else _as_json(filter),
            id_count=None if ids is None else len(ids),
            options=given,
            as_of=preview.as_of,
            dry_run=dry_run,
            matched=preview.matched,
            matched_exact=preview.matched_exact,
            by=clean(by, MAX_KEY),
            created_at=now,
            updated_at=now,
        )
        namespace = self._store.namespace if isinstance(self._store, TenantStore) else None
        stored = records.StoredBulk(
            operation=operation, namespace=namespace, ids=tuple(dict.fromkeys(ids or ()))
        )
        await records.create(self._store, stored)
        return operation

    async def preview(
        self,
        action: BulkAction | str,
        *,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        ids: Sequence[str] | None = None,
        as_of: Moment | None = None,
    ) -> BulkPreview:
        """Return at once how many jobs an operation would look at: 10,000 may mean more.

        Start it with the ``as_of`` of the preview: it then touches no job that matches later.
        """
        doing, now = _action(action), self._store.now()
        until = now if as_of is None else min(now, _instant(as_of))
        _check_selection(filter, ids)
        if filter is None:
            unique = tuple(dict.fromkeys(ids or ()))
            return BulkPreview(
                action=doing,
                as_of=until,
                matched=len(unique),
                matched_exact=True,
                examples=unique[:EXAMPLES],
            )
        search = search_of(doing, filter)
        if search is None:
            return BulkPreview(action=doing, as_of=until, matched=0, matched_exact=True)
        limit = EXAMPLES if predicate(filter) is None else MOST_COMPARED
        page = await BulkPages(self._store).matching(replace(search, limit=limit), filter)
        return BulkPreview(
            action=doing,
            as_of=until,
            matched=page.total,
            matched_exact=page.total_exact,
            examples=tuple(job.id for job in page.jobs[:EXAMPLES]),
        )

    async def list(self, *, after: str = "", limit: int = 50) -> builtins.list[BulkOperation]:
        """Return operations, the newest first; ``after`` continues behind an id."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PAGE:
            message = f"must be from 1 to {MOST_PAGE}, got {shown(limit)}"
            raise ValidationError([Fault("limit", "OUT_OF_RANGE", message)])
        found = await records.newest(self._store, after=after, limit=limit)
        return [stored.operation for stored in found]

    async def get(self, operation_id: str) -> BulkOperation:
        """Return an operation with its progress; NotFoundError when there is none."""
        stored, _ = await records.read(self._store, operation_id)
        if stored is None:
            raise NotFoundError(operation_id, "operation")
        return stored.operation

    async def cancel(self, operation_id: str) -> BulkOperation:
        """Stop an operation; what it has changed stays. One that has ended does not change."""
        while True:
            stored, version = await records.read(self._store, operation_id)
            if stored is None:
                raise NotFoundError(operation_id, "operation")
            operation = stored.operation
            if operation.ended:
                return operation
            stopped = operation.finished(BulkState.CANCELLED, now=self._store.now())
            if await records.write(self._store, replace(stored, operation=stopped), version):
                return stopped

    async def wait(self, operation_id: str, *, timeout: Span | None = None) -> BulkOperation:
        """Wait until an operation has ended; TimeoutError when that takes longer."""
        seconds = None if timeout is None else read_span("timeout", timeout).total_seconds()
        async with asyncio.timeout(seconds):
            while not (found := await self.get(operation_id)).ended:  # noqa: ASYNC110  # it may run elsewhere
                await asyncio.sleep(POLL)
        return found

    async def _check_quota(self) -> None:
        running = len(await records.open_ids(self._store))
        if running >= records.MOST_OPEN:
            limit = "operations on many jobs that have not ended"
            raise QuotaError(limit, current=running, maximum=records.MOST_OPEN)

    def _new_id(self, now: datetime) -> str:
        """Return an id by which operations sort as they were started."""
        return f"{int(now.timestamp() * 1000):012x}-{self._randomness.token()[:12]}"


def _action(action: object) -> BulkAction:
    try:
        return BulkAction(str(action))
    except ValueError:
        choices = ", ".join(BulkAction)
        message = f"must be one of {choices}, got {shown(action)}"
        raise ValidationError([Fault("action", "INVALID", message)]) from None


def _options(action: BulkAction, given: BulkOptions) -> dict[str, object]:
    """Return the options that were given; each must belong to the action and be valid."""
    faults = [
        Fault(clean(str(name), 60), "UNSUPPORTED", f"must not be given to {action}")
        for name, value in given.items()
        if (value or (name == "priority" and value is not None)) and name not in OPTIONS[action]
    ]
    priority = given.get("priority")
    if action is BulkAction.REPRIORITISE and priority is None:
        faults.append(Fault("priority", "REQUIRED", "is required"))
    if faults:
        raise ValidationError(faults)
    options: dict[str, object] = {
        "reason": clean(str(given.get("reason", "")), MAX_KEY),
        "force": bool(given.get("force", False)),
        "reset_attempts": bool(given.get("reset_attempts", False)),
        "delay": read_span("delay", given.get("delay", 0)).total_seconds(),
        "priority": None if priority is None else Priority(priority_level(priority)).name,
    }
    return {name: value for name, value in options.items() if value}


def _check_selection(wanted: JobFilter | None, ids: Sequence[str] | None) -> None:
    must_select_once(ids, wanted, "ids")
    if wanted is not None:
        if not isinstance(cast("object", wanted), Mapping):
            message = f"must be an object, got {shown(wanted)}"
            raise ValidationError([Fault("filter", "INVALID", message)])
        check_batch_filter(wanted)
        job_search(wanted)
    elif ids is not None:
        _check_ids(ids)


def _check_ids(ids: Sequence[str]) -> None:
    if isinstance(ids, str) or not isinstance(ids, Sequence) or not 1 <= len(ids) <= MOST_IDS:
        message = f"must be a list of 1 to {MOST_IDS} ids, got {shown(ids)}; a filter has no limit"
        raise ValidationError([Fault("ids", "INVALID", message)])
    wrong = next((i for i in ids if not isinstance(i, str) or clean(i, MAX_KEY) != i), None)
    if wrong is not None:
        raise ValidationError([Fault("ids", "INVALID", f"must be ids, got {shown(wrong)}")])


def _as_json(wanted: JobFilter) -> dict[str, object]:
    """Return a filter as it is stored and shown; each page of an operation writes it again."""
    data = msgspec.json.encode(wanted)
    if len(data) > MOST_FILTER:
        message = f"must have at most {MOST_FILTER} bytes as JSON, got {len(data)}"
        raise ValidationError([Fault("filter", "TOO_LONG", message)])
    return msgspec.json.decode(data, type=dict[str, object])


def _instant(as_of: Moment) -> datetime:
    try:
        return parse_timestamp(as_of)
    except ValueError as error:
        raise ValidationError([Fault("as_of", "INVALID_TIMESTAMP", str(error))]) from None
