"""Routes about webhooks and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import msgspec
from msgspec.structs import replace

from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import Field, flag, integer, text, text_list
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.model.job import State
from holdfast.model.validation import MAX_URL
from holdfast.webhooks import Delivery, DeliveryPage, Webhook, Webhooks
from holdfast.webhooks.values import ENDS


class WebhookInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook; a secret is returned once, by the call that makes it."""

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
        """Return the body for a webhook."""
        fields = msgspec.structs.asdict(webhook)
        fields["tags"] = dict(webhook.tags)
        fields["secrets"] = webhook.secrets if secrets else ()
        return cls(**fields)


class WebhookList(msgspec.Struct, frozen=True):
    """Every webhook."""

    webhooks: tuple[WebhookInfo, ...]


class WebhookRemoval(msgspec.Struct, frozen=True):
    """A webhook that was removed."""

    id: str
    removed: bool = True


def _webhooks(call: Call) -> Webhooks:
    return call.service.app.webhooks_over(call.operations)


async def list_webhooks(call: Call) -> JsonResponse:
    """Return every webhook."""
    found = await _webhooks(call).list()
    return JsonResponse(WebhookList(tuple(WebhookInfo.of(one) for one in found)))


async def add_webhook(call: Call) -> JsonResponse:
    """Register an address."""
    fields = dict(call.fields)
    url = str(fields.pop("url"))
    added = await _webhooks(call).add(url, **fields)  # type: ignore[arg-type]  # read by type
    return JsonResponse(WebhookInfo.of(added, secrets=True), status=201)


async def get_webhook(call: Call) -> JsonResponse:
    """Return a webhook."""
    return JsonResponse(WebhookInfo.of(await _webhooks(call).get(call.path["webhook_id"])))


async def remove_webhook(call: Call) -> JsonResponse:
    """Remove a webhook."""
    webhook_id = call.path["webhook_id"]
    await _webhooks(call).remove(webhook_id)
    return JsonResponse(WebhookRemoval(webhook_id))


async def switch_webhook(call: Call) -> JsonResponse:
    """Disable a webhook, or enable it again."""
    enabled = cast("bool", call.fields["enabled"])
    switched = await _webhooks(call).switch(call.path["webhook_id"], enabled=enabled)
    return JsonResponse(WebhookInfo.of(switched))


async def rotate_secret(call: Call) -> JsonResponse:
    """Add a new signing secret."""
    keep = cast("int", call.fields.get("keep", 1))
    rotated = await _webhooks(call).rotate(call.path["webhook_id"], keep=keep)
    return JsonResponse(WebhookInfo.of(rotated, secrets=True))


async def deliveries(call: Call) -> JsonResponse:
    """Return deliveries, newest first."""
    page = await _webhooks(call).deliveries(
        cast("str | None", call.query.get("webhook")),
        limit=cast("int", call.query.get("limit", 50)),
        cursor=cast("str | None", call.query.get("cursor")),
    )
    return JsonResponse(page)


async def resend(call: Call) -> JsonResponse:
    """Send a message again."""
    return JsonResponse(await _webhooks(call).resend(call.path["delivery_id"]))


def _read_tags(value: object) -> object:
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
        response=WebhookList,
    ),
    Endpoint(
        method="POST",
        path=_PATH,
        name="addWebhook",
        summary="Send a message to an address when jobs end",
        description="The response holds the secret that verifies messages. It is shown only once.",
        handler=add_webhook,
        permission=Permission.ADMINISTER,
        body_fields=(
            text(
                "url",
                minimum=1,
                maximum=MAX_URL,
                required=True,
                description="Where messages are posted.",
            ),
            text_list(
                "states",
                choices=ENDS,
                minimum=1,
                maximum=len(ENDS),
                description="Only jobs that end in these states.",
            ),
            text_list("types", maximum=100, description="Only jobs of these types."),
            text_list("queues", maximum=100, description="Only jobs of these queues."),
            Field(
                name="tags",
                schema=_TAGS,
                read=_read_tags,
                description="Only jobs with all these tags.",
            ),
            flag("include_result", "Include the job's result in the message."),
            text("description", description="A note for people."),
        ),
        example={"url": "https://example.org/hooks/jobs", "states": ["FAILED", "DEAD_LETTER"]},
        response=WebhookInfo,
        status=201,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{webhook_id}}",
        name="getWebhook",
        summary="Get a webhook",
        handler=get_webhook,
        permission=Permission.WATCH,
        response=WebhookInfo,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="DELETE",
        path=f"{_PATH}/{{webhook_id}}",
        name="removeWebhook",
        summary="Remove a webhook",
        handler=remove_webhook,
        permission=Permission.ADMINISTER,
        response=WebhookRemoval,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="PATCH",
        path=f"{_PATH}/{{webhook_id}}",
        name="switchWebhook",
        summary="Disable a webhook, or enable it again",
        description="While it is disabled, no messages are made for jobs that end. Messages that"
        " exist are still sent.",
        handler=switch_webhook,
        permission=Permission.ADMINISTER,
        body_fields=(replace(flag("enabled", "Whether it receives messages."), required=True),),
        example={"enabled": False},
        response=WebhookInfo,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{webhook_id}}/rotate",
        name="rotateWebhookSecret",
        summary="Add a new signing secret",
        description="The id `callback` stands for the secret that signs messages to the"
        " callback_url of jobs; the first call makes it.",
        handler=rotate_secret,
        permission=Permission.ADMINISTER,
        body_fields=(
            integer("keep", 0, 1, default=1, description="How many older secrets stay valid."),
        ),
        example={"keep": 1},
        response=WebhookInfo,
        errors=("NOT_FOUND",),
        audited=True,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/deliveries",
        name="listDeliveries",
        summary="List deliveries, newest first",
        handler=deliveries,
        permission=Permission.WATCH,
        query=(
            text(
                "webhook",
                description="Only of this webhook; `callback`: to the callback_url of jobs.",
            ),
            text("cursor", maximum=512, description="next_cursor of the page before."),
            integer("limit", 1, 1000, default=50),
        ),
        response=DeliveryPage,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/deliveries/{delivery_id}/resend",
        name="resendDelivery",
        summary="Send a message again with the same message id",
        handler=resend,
        permission=Permission.OPERATE,
        body_fields=(),
        response=Delivery,
        errors=("NOT_FOUND",),
        audited=True,
    ),
)
