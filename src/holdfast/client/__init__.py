"""The client of a holdfast service: the same operations as an app, over HTTP.

``Client`` is for asyncio, ``SyncClient`` for blocking code. Both need only the core package.
"""

from __future__ import annotations

import os
from typing import Self

from holdfast.client.operations import RemoteOperations
from holdfast.client.webhooks import RemoteWebhooks
from holdfast.errors import StoreError
from holdfast.operations.interface import JobOperations, OperationsBackend
from holdfast.operations.sync import Home, SyncOperations
from holdfast.runtime.randomness import Randomness
from holdfast.webhooks import Webhooks


def webhooks_over(operations: OperationsBackend) -> Webhooks:
    """Return the webhooks of a service."""
    assert isinstance(operations, RemoteOperations)
    return RemoteWebhooks(operations)


class Client(JobOperations):
    """A client of a holdfast service.

    ``url`` is the service's address, else ``$HOLDFAST_URL``; ``key`` an API key, else
    ``$HOLDFAST_API_KEY``. While the service is unavailable, calls that are safe to repeat are
    retried for half a minute. Use it as ``async with Client(url) as client:``.
    """

    def __init__(self, url: str | None = None, *, key: str | None = None) -> None:
        self.url = url or os.environ.get("HOLDFAST_URL", "")
        if not self.url.startswith(("http://", "https://")):
            raise StoreError(f"a client needs the address of a service, got {self.url!r}")
        self._key = key
        self._operations: OperationsBackend | None = None

    async def start(self) -> Self:
        """Make the client ready for calls; connections open when they are needed."""
        self._operations = self._operations or await self.open_operations()
        return self

    async def close(self) -> None:
        """Close all connections."""
        operations, self._operations = self._operations, None
        if operations is not None:
            await operations.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def home(self) -> Home | None:
        """None: blocking callers open their own connections."""
        return None

    @property
    def webhooks(self) -> Webhooks:
        """Addresses that are sent a message when jobs end."""
        return self.webhooks_over(self.operations)

    def webhooks_over(self, operations: OperationsBackend) -> Webhooks:
        """Return the webhooks of the service behind these operations."""
        return webhooks_over(operations)

    async def open_operations(self) -> OperationsBackend:
        """Return operations with their own connections to the service."""
        return RemoteOperations(self.url, key=self._key, randomness=Randomness())

    @property
    def operations(self) -> OperationsBackend:
        if self._operations is None:
            raise RuntimeError("the client is not started: use 'async with client:'")
        return self._operations


class SyncClient(SyncOperations):
    """A client of a holdfast service for blocking code; usable from any thread."""

    def __init__(self, url: str | None = None, *, key: str | None = None) -> None:
        super().__init__(Client(url, key=key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Client", "SyncClient"]
