"""The operations on many jobs of a service: the same names, arguments, results and errors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Unpack
from urllib.parse import quote

from holdfast.api.responses import OperationList
from holdfast.client.requests import encode_body, query
from holdfast.client.schedules import ServiceRequests
from holdfast.errors import Fault, ValidationError
from holdfast.model.bulk import BulkAction, BulkOperation, BulkPreview
from holdfast.model.times import Moment, shown
from holdfast.operations.bulk import BulkOperations, BulkOptions
from holdfast.operations.changes import read_span
from holdfast.operations.filters import JobFilter


class RemoteBulkOperations(BulkOperations):
    """The operations of a service, or of the one namespace that a key sees."""

    def __init__(self, service: ServiceRequests) -> None:
        self._service = service

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
        """Start an operation. The service records its caller."""
        body = {**_selection(action, filter, ids, as_of), "dry_run": dry_run}
        body |= {name: value for name, value in options.items() if value is not None}
        if "delay" in options:
            body["delay"] = read_span("delay", options["delay"])
        return await self._service.request("POST", "/operations", BulkOperation, encode_body(body))

    async def preview(
        self,
        action: BulkAction | str,
        *,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        ids: Sequence[str] | None = None,
        as_of: Moment | None = None,
    ) -> BulkPreview:
        """Return at once how many jobs an operation would look at."""
        body = encode_body(_selection(action, filter, ids, as_of))
        return await self._service.request("POST", "/operations/preview", BulkPreview, body)

    async def list(self, *, after: str = "", limit: int = 50) -> builtins.list[BulkOperation]:
        """Return operations, the newest first."""
        path = f"/operations{query({'after': after or None, 'limit': limit})}"
        return [*(await self._service.request("GET", path, OperationList)).operations]

    async def get(self, operation_id: str) -> BulkOperation:
        """Return an operation with its progress; NotFoundError when there is none."""
        path = _path(operation_id)
        return await self._service.request("GET", path, BulkOperation, subject=operation_id)

    async def cancel(self, operation_id: str) -> BulkOperation:
        """Stop an operation; what it has changed stays."""
        path = f"{_path(operation_id)}/cancel"
        return await self._service.request("POST", path, BulkOperation, subject=operation_id)


def _selection(
    action: object, wanted: JobFilter | None, ids: Sequence[str] | None, as_of: Moment | None
) -> dict[str, object]:
    given = {"action": action, "filter": wanted, "ids": ids, "as_of": as_of}
    return {name: value for name, value in given.items() if value is not None}


def _path(operation_id: str) -> str:
    if not isinstance(operation_id, str) or not operation_id:
        message = f"must be an id, got {shown(operation_id)}"
        raise ValidationError([Fault("operation_id", "INVALID", message)])
    return f"/operations/{quote(operation_id, safe='')}"
