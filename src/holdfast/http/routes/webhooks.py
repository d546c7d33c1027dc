"""Routes about webhooks: who is told of ends, and what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import msgspec

from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import Field, flag, integer, text, words
from holdfast.http.permissions import Permission
from holdfast.model.job import State
from holdfast.model.validation import MAX_URL
from holdfast.webhooks import AddressGuard, Delivery, DeliveryPage, Webhook, Webhooks
from holdfast.webhooks.values import ENDS


class WebhookInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook; its secrets are shown when they are made, and never again."""

    id: str
    url: str
    created_at: datetime
    states: tuple[State, ...]
    types: tuple[str, ...]
    queues: tuple[str, ...]
    tags: dict[str, str]
    include_result: bool
    enabled: bool
    description: str
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, webhook: Webhook, *, secrets: bool = False) -> WebhookInfo:
        """Write a webhook."""
        fields = msgspec.structs.asdict(webhook)
        fields["tags"] = dict(webhook.tags)
        fields["secrets"] = webhook.secrets if secrets else ()
        return cls(**fields)


class WebhookList(msgspec.Struct, frozen=True):
    """Every webhook."""

    webhooks: tuple[WebhookInfo, ...]


class WebhookRemoval(msgspec.Struct, frozen=True):
    """A webhook that is told no more."""

    id: str
    removed: bool = True


def _webhooks(call: Call) -> Webhooks:
    app = call.service.app
    return Webhooks(call.operations, AddressGuard(app.webhook_settings.allow), app.randomness)


async def list_webhooks(call: Call) -> Answer:
    """Return every webhook."""
    found = await _webhooks(call).list()
    return Answer(WebhookList(tuple(WebhookInfo.of(one) for one in found)))


async def add_webhook(call: Call) -> Answer:
    """Tell an address of ends from now on."""
    form = dict(call.form)
    made = await _webhooks(call).add(str(form.pop("url")), **form)  # type: ignore[arg-type]
    return Answer(WebhookInfo.of(made, secrets=True), status=201)


async def get_webhook(call: Call) -> Answer:
    """Return a webhook."""
    return Answer(WebhookInfo.of(await _webhooks(call).get(call.path["webhook_id"])))


async def remove_webhook(call: Call) -> Answer:
    """Tell an address no more."""
    webhook_id = call.path["webhook_id"]
    await _webhooks(call).remove(webhook_id)
    return Answer(WebhookRemoval(webhook_id))


async def rotate_secret(call: Call) -> Answer:
    """Sign with a new secret beside the old one."""
    keep = cast("int", call.form.get("keep", 1))
    after = await _webhooks(call).rotate(call.path["webhook_id"], keep=keep)
    return Answer(WebhookInfo.of(after, secrets=True))


async def deliveries(call: Call) -> Answer:
    """Return deliveries, newest first."""
    page = await _webhooks(call).deliveries(
        cast("str | None", call.query.get("webhook")),
        limit=cast("int", call.query.get("limit", 50)),
        cursor=cast("str | None", call.query.get("cursor")),
    )
    return Answer(page)


async def resend(call: Call) -> Answer:
    """Send a message again."""
    return Answer(await _webhooks(call).resend(call.path["delivery_id"]))


def _tags(value: object) -> object:
    try:
        return msgspec.convert(value, dict[str, str])
    except msgspec.ValidationError as error:
        raise ValueError(f"must be a map of strings: {error}") from None


_TAGS = {"type": "object", "additionalProperties": {"type": "string"}}
_PATH = "/api/v1/webhooks"

ENDPOINTS = (
    Endpoint(
        method="GET",
        path=_PATH,
        name="listWebhooks",
        summary="List webhooks",
        handler=list_webhooks,
        permission=Permission.WATCH,
        answer=WebhookList,
    ),
    Endpoint(
        method="POST",
        path=_PATH,
        name="addWebhook",
        summary="Tell an address of ends from now on",
        help="The answer holds the secret to verify messages with; it is not shown again.",
        handler=add_webhook,
        permission=Permission.ADMINISTER,
        form=(
            text("url", least=1, most=MAX_URL, required=True, help="Where to POST."),
            words("states", choices=ENDS, least=1, most=len(ENDS), help="Only such ends."),
            words("types", most=100, help="Only jobs of these types."),
            words("queues", most=100, help="Only jobs of these queues."),
            Field(name="tags", schema=_TAGS, read=_tags, help="Only jobs with all these tags."),
            flag("include_result", "Send the job's result, too."),
            text("description", help="What it is for."),
        ),
        example={"url": "https://example.org/hooks/jobs", "states": ["FAILED", "DEAD_LETTER"]},
        answer=WebhookInfo,
        status=201,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{webhook_id}}",
        name="getWebhook",
        summary="Show one webhook",
        handler=get_webhook,
        permission=Permission.WATCH,
        answer=WebhookInfo,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="DELETE",
        path=f"{_PATH}/{{webhook_id}}",
        name="removeWebhook",
        summary="Tell an address no more",
        handler=remove_webhook,
        permission=Permission.ADMINISTER,
        answer=WebhookRemoval,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{webhook_id}}/rotate",
        name="rotateWebhookSecret",
        summary="Sign with a new secret beside the old one",
        help="callback as the id: the secret that signs what the addresses are told which jobs"
        " name themselves, as callback_url. It is made at the first call.",
        handler=rotate_secret,
        permission=Permission.ADMINISTER,
        form=(integer("keep", 0, 1, default=1, help="Older secrets that stay good."),),
        example={"keep": 1},
        answer=WebhookInfo,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/deliveries",
        name="listDeliveries",
        summary="List what was delivered, or why not",
        handler=deliveries,
        permission=Permission.WATCH,
        query=(
            text("webhook", help="Only this one's; callback for those that jobs name."),
            text("cursor", most=512, help="From the page before."),
            integer("limit", 1, 1000, default=50),
        ),
        answer=DeliveryPage,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/deliveries/{delivery_id}/resend",
        name="resendDelivery",
        summary="Send a message again, under the same message id",
        handler=resend,
        permission=Permission.OPERATE,
        form=(),
        answer=Delivery,
        errors=("NOT_FOUND",),
        audited=True,
    ),
)
