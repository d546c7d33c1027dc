"""The webhooks of a service: the same names, arguments, results and errors as at a store."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from holdfast.client.requests import query, written
from holdfast.errors import StoreError
from holdfast.model.job import State
from holdfast.webhooks.registry import SECRETS_KEPT, Webhooks
from holdfast.webhooks.values import CALLBACK, ENDS, Delivery, DeliveryPage, Webhook

if TYPE_CHECKING:
    from holdfast.client.operations import RemoteOperations


class _List(msgspec.Struct, frozen=True):
    webhooks: tuple[Webhook, ...]


class _Removal(msgspec.Struct, frozen=True):
    id: str


class RemoteWebhooks(Webhooks):
    """The webhooks of a service, or of the one namespace that a key sees.

    Secrets are told when they are made and never again.
    """

    def __init__(self, operations: RemoteOperations) -> None:
        self._service = operations

    async def add(  # one keyword per filter
        self,
        url: str,
        *,
        states: Sequence[State | str] = ENDS,
        types: Sequence[str] = (),
        queues: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        include_result: bool = False,
        description: str = "",
        secret: str | None = None,
    ) -> Webhook:
        """Tell an address of ends from now on; the answer holds the secret to verify them with."""
        if secret is not None:
            raise StoreError("a service makes the secret itself; to give one needs the store's URL")
        body = {
            "url": url,
            "states": list(states),
            "types": list(types),
            "queues": list(queues),
            "tags": dict(tags or {}),
            "include_result": include_result,
            "description": description,
        }
        return await self._service.ask("POST", "/webhooks", Webhook, written(body))

    async def list(self) -> builtins.list[Webhook]:
        """Return every webhook, oldest first."""
        return [*(await self._service.ask("GET", "/webhooks", _List)).webhooks]

    async def get(self, webhook_id: str) -> Webhook:
        """Return a webhook; NotFoundError when there is none."""
        return await self._service.ask("GET", _path(webhook_id), Webhook, named=webhook_id)

    async def remove(self, webhook_id: str) -> None:
        """Tell an address no more; deliveries that are under way fail."""
        await self._service.ask("DELETE", _path(webhook_id), _Removal, named=webhook_id)

    async def rotate(
        self, webhook_id: str, *, secret: str | None = None, keep: int = SECRETS_KEPT - 1
    ) -> Webhook:
        """Sign with a new secret, too; ``keep`` of the older ones stay good until the next time."""
        if secret is not None:
            raise StoreError("a service makes the secret itself; to give one needs the store's URL")
        path, body = f"{_path(webhook_id)}/rotate", written({"keep": keep})
        return await self._service.ask("POST", path, Webhook, body, named=webhook_id)

    async def switch(self, webhook_id: str, *, enabled: bool) -> Webhook:
        """Refused: a service adds and removes webhooks."""
        raise StoreError("this needs the store itself: give its URL instead of the service's")

    async def callback_secrets(self, *, rotate: bool = False) -> tuple[str, ...]:
        """Make a new secret for messages to jobs' own addresses; old ones are told with it only."""
        if not rotate:
            told = "a service tells secrets when it makes them: rotate, or give the store's URL"
            raise StoreError(told)
        return (await self.rotate(CALLBACK)).secrets

    async def deliveries(
        self, webhook_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """Return deliveries, newest first, of one webhook or all; ``callback`` is one, too."""
        asked = query({"webhook": webhook_id, "limit": limit, "cursor": cursor})
        return await self._service.ask("GET", f"/deliveries{asked}", DeliveryPage)

    async def delivery(self, delivery_id: str) -> Delivery:
        """Refused: a service lists them."""
        raise StoreError("this needs the store itself: give its URL instead of the service's")

    async def resend(self, delivery_id: str) -> Delivery:
        """Send a message again, at once, under the same message id."""
        path = f"/deliveries/{quote(delivery_id, safe='')}/resend"
        return await self._service.ask("POST", path, Delivery, named=delivery_id)


def _path(webhook_id: str) -> str:
    return f"/webhooks/{quote(webhook_id, safe='')}"
