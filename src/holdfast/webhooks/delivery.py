"""The task that delivers one message with one POST, and interprets the response."""

from __future__ import annotations

from holdfast.errors import MissingExtraError, PermanentError, TemporaryError
from holdfast.model.reserved import WEBHOOK
from holdfast.runtime.clock import Clock
from holdfast.store import Store
from holdfast.store.tenants import TenantStore
from holdfast.tasks.context import JobContext
from holdfast.webhooks.address_guard import AddressGuard, RefusedAddressError
from holdfast.webhooks.proof import Proof
from holdfast.webhooks.registry import callback_hook, read
from holdfast.webhooks.signatures import headers
from holdfast.webhooks.values import CALLBACK, Message, Webhook, WebhookSettings

GONE = 410


class Deliverer:
    """Delivers the messages of one store."""

    def __init__(self, store: Store, settings: WebhookSettings, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._guard = AddressGuard(settings.allow)
        self._proof = Proof(store)

    async def deliver(self, ctx: JobContext, payload: Message) -> dict[str, object]:
        """Send one message; retry unless the response is 2xx, or 410 Gone."""
        namespace = ctx.queue.rpartition("/")[0]
        if not await self._proof.holds(payload, namespace):
            message = "holdfast did not make this delivery: it is neither signed nor sent"
            raise PermanentError(message, code="FORGED")
        webhook = await self._webhook(namespace, payload)
        url = payload.url or webhook.url
        body = payload.body.encode()
        timestamp = int(self._clock.now().timestamp())
        signed = headers(webhook.secrets, payload.message_id, timestamp, body)
        try:
            from holdfast.webhooks.transport import UnreachableError, post
        except MissingExtraError as error:
            raise TemporaryError(str(error), code="EXTRA_MISSING") from None
        try:
            reply = await post(url, body, signed, guard=self._guard, timeout=self._settings.timeout)
        except RefusedAddressError as error:
            raise PermanentError(str(error), code="ADDRESS_REFUSED") from None
        except UnreachableError as error:
            raise TemporaryError(str(error), code="UNREACHABLE") from None
        if 200 <= reply.status < 300:
            return {"status": reply.status}
        message = f"the receiver answered {reply.status}"
        if reply.status == GONE:
            raise PermanentError(f"{message}: it wants no more messages", code="GONE")
        if 300 <= reply.status < 400:
            message += ", a redirect, which is not followed"
        raise TemporaryError(message, retry_after=reply.retry_after, code=f"HTTP_{reply.status}")

    async def _webhook(self, namespace: str, message: Message) -> Webhook:
        store: Store = TenantStore(self._store, namespace) if namespace else self._store
        if message.webhook == CALLBACK:
            return await callback_hook(store)
        (record,) = await store.records(WEBHOOK, [message.webhook])
        if record is None:
            raise PermanentError(f"webhook {message.webhook} was removed", code="WEBHOOK_REMOVED")
        return read(record.data)
