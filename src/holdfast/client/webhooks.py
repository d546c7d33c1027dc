"""The webhooks of a service: the same names, arguments, results and errors as on a store."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from holdfast.client.requests import encode_body, query
from holdfast.errors import StoreError
from holdfast.model.job import State
from holdfast.webhooks.registry import SECRETS_KEPT, Webhooks
from holdfast.webhooks.values import CALLBACK, ENDS, Delivery, DeliveryPage, Webhook

if TYPE_CHECKING:
    from holdfast.client.operations import RemoteOperations


_NEEDS_STORE = "this needs the store itself: give its URL instead of the service's"
_MADE_BY_SERVICE = "a service makes the secret itself; to choose one, give the store's URL"


class _WebhookList(msgspec.Struct, frozen=True):
    webhooks: tuple[Webhook, ...]


class _Removed(msgspec.Struct, frozen=True):
    id: str


class RemoteWebhooks(Webhooks):
    """The webhooks of a service, or of the one namespace that a key sees.

    The service returns a secret once, when it makes it.
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
        """Register an address for messages about ended jobs; the result holds the secret."""
        if secret is not None:
            raise StoreError(_MADE_BY_SERVICE)
        body = {
            "url": url,
            "states": list(states),
            "types": list(types),
            "queues": list(queues),
            "tags": dict(tags or {}),
            "include_result": include_result,
            "description": description,
        }
        return await self._service.request("POST", "/webhooks", Webhook, encode_body(body))

    async def list(self) -> builtins.list[Webhook]:
        """Return every webhook, oldest first."""
        return [*(await self._service.request("GET", "/webhooks", _WebhookList)).webhooks]

    async def get(self, webhook_id: str) -> Webhook:
        """Return a webhook; NotFoundError when there is none."""
        return await self._service.request("GET", _path(webhook_id), Webhook, subject=webhook_id)

    async def remove(self, webhook_id: str) -> None:
        """Remove a webhook; deliveries in progress fail."""
        await self._service.request("DELETE", _path(webhook_id), _Removed, subject=webhook_id)

    async def rotate(
        self, webhook_id: str, *, secret: str | None = None, keep: int = SECRETS_KEPT - 1
    ) -> Webhook:
        """Add a new signing secret; ``keep`` older ones stay valid until the next rotation."""
        if secret is not None:
            raise StoreError(_MADE_BY_SERVICE)
        path, body = f"{_path(webhook_id)}/rotate", encode_body({"keep": keep})
        return await self._service.request("POST", path, Webhook, body, subject=webhook_id)

    async def switch(self, webhook_id: str, *, enabled: bool) -> Webhook:
        """Disable a webhook, or enable it again."""
        body = encode_body({"enabled": enabled})
        return await self._service.request(
            "PATCH", _path(webhook_id), Webhook, body, subject=webhook_id
        )

    async def callback_secrets(self, *, rotate: bool = False) -> tuple[str, ...]:
        """Make a new secret for messages to callback URLs; older valid ones come with it."""
        if not rotate:
            raise StoreError(
                "a service returns secrets when it makes them: rotate, or give the store's URL"
            )
        return (await self.rotate(CALLBACK)).secrets

    async def deliveries(
        self, webhook_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """Return deliveries, newest first, of one webhook (or ``callback``) or of all."""
        parameters = query({"webhook": webhook_id, "limit": limit, "cursor": cursor})
        return await self._service.request("GET", f"/deliveries{parameters}", DeliveryPage)

    async def delivery(self, delivery_id: str) -> Delivery:
        """Raise StoreError: a service has no such route."""
        raise StoreError(_NEEDS_STORE)

    async def resend(self, delivery_id: str) -> Delivery:
        """Send a message again, at once, under the same message id."""
        path = f"/deliveries/{quote(delivery_id, safe='')}/resend"
        return await self._service.request("POST", path, Delivery, subject=delivery_id)


def _path(webhook_id: str) -> str:
    return f"/webhooks/{quote(webhook_id, safe='')}"
