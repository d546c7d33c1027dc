"""Webhooks and their deliveries: add, switch, rotate, remove; what arrived, and send again."""

from __future__ import annotations

import msgspec

from holdfast.dashboard.parts import ListPart, part_of
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import NotFoundError
from holdfast.model.job import State
from holdfast.webhooks import Delivery, Webhooks
from holdfast.webhooks.values import CALLBACK, ENDS

LISTED = 50
FAILED = (State.FAILED, State.DEAD_LETTER)


class WebhookRow(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook; without its secrets."""

    id: str
    url: str
    description: str
    enabled: bool
    wants: str
    """Which ends it receives, in words."""


class WebhooksView(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks, and deliveries of all or of one."""

    webhooks: tuple[WebhookRow, ...]
    part: ListPart
    deliveries: tuple[Delivery, ...]
    names: dict[str, str]
    """What to call the webhook of a delivery."""
    after: str | None
    chosen: str
    failed: int
    states: tuple[State, ...] = ENDS


def _webhooks(visit: Visit) -> Webhooks:
    return visit.service.app.webhooks_over(visit.operations)


async def webhooks(visit: Visit) -> WebhooksView:
    """Return the webhooks and their newest deliveries."""
    chosen = visit.asked("webhook")
    found = await _webhooks(visit).list()
    page = await _webhooks(visit).deliveries(
        chosen or None, limit=LISTED, cursor=visit.asked("cursor") or None
    )
    shown, part = part_of(visit, found)
    named = {chosen, *(each.webhook for each in page.deliveries)}
    names = {each.id: each.url for each in found if each.id in named}
    return WebhooksView(
        webhooks=tuple(
            WebhookRow(
                id=each.id,
                url=each.url,
                description=each.description,
                enabled=each.enabled,
                wants=_wants(each.states, each.types, each.queues, dict(each.tags)),
            )
            for each in shown
        ),
        part=part,
        deliveries=page.deliveries,
        names={CALLBACK: "callback of a job", **names},
        after=page.next_cursor,
        chosen=chosen,
        failed=sum(each.state in FAILED for each in page.deliveries),
    )


def _wants(
    states: tuple[State, ...], types: tuple[str, ...], queues: tuple[str, ...], tags: dict[str, str]
) -> str:
    ends = "every end" if set(states) == set(ENDS) else ", ".join(each.value for each in states)
    parts = [ends.lower().replace("_", " ")]
    if types:
        parts.append(f"of {', '.join(types)}")
    if queues:
        parts.append(f"in {', '.join(queues)}")
    if tags:
        parts.append("with " + ", ".join(f"{name}:{value}" for name, value in tags.items()))
    return " ".join(parts)


async def add(visit: Visit) -> ActionDone:
    """Register an address; its secret is shown once."""
    states = [each for each in visit.form.get("states", ()) if each]
    made = await _webhooks(visit).add(
        visit.given("url"),
        types=_names(visit, "types"),
        queues=_names(visit, "queues"),
        include_result=visit.given("include_result") == "1",
        description=visit.given("description"),
        **({"states": states} if states else {}),  # type: ignore[arg-type]  # checked there
    )
    return _secret("added", made.secrets[0])


async def rotate(visit: Visit) -> ActionDone:
    """Sign with a new secret as well."""
    name = visit.path["webhook"]
    try:
        made = await _webhooks(visit).rotate(name)
    except NotFoundError:
        return _gone(name)
    return _secret("signed with a new secret as well; the old one stays valid", made.secrets[0])


def _secret(done: str, secret: str) -> ActionDone:
    message = f"The webhook is {done}. Keep its secret now, it is shown only once: {secret}"
    return ActionDone(message=message, to=("webhooks",))


async def switch(visit: Visit) -> ActionDone:
    """Disable a webhook, or enable it again."""
    name, enabled = visit.path["webhook"], visit.given("enabled") == "1"
    try:
        await _webhooks(visit).switch(name, enabled=enabled)
    except NotFoundError:
        return _gone(name)
    if enabled:
        return ActionDone(message="The webhook receives messages again.")
    return ActionDone(message="The webhook is disabled: jobs that end make no messages for it.")


async def remove(visit: Visit) -> ActionDone:
    """Remove a webhook."""
    name = visit.path["webhook"]
    try:
        await _webhooks(visit).remove(name)
    except NotFoundError:
        return _gone(name)
    return ActionDone(message="The webhook is removed.", to=("webhooks",))


async def resend(visit: Visit) -> ActionDone:
    """Send a message again."""
    name = visit.path["delivery"]
    try:
        await _webhooks(visit).resend(name)
    except NotFoundError:
        message = f"Nothing was sent: there is no delivery {name}."
        return ActionDone(message=message, failed=True)
    return ActionDone(message="The message is sent again.")


def _gone(name: str) -> ActionDone:
    message = f"Nothing was changed: there is no webhook {name}."
    return ActionDone(message=message, failed=True)


def _names(visit: Visit, field: str) -> list[str]:
    return [each for each in visit.given(field).replace(",", " ").split() if each]


SCREENS = (
    ScreenRoute(
        path="/webhooks",
        title="Webhooks",
        template="webhooks.html",
        call="listWebhooks",
        view=webhooks,
        section="system",
        reads=6,
    ),
)

ACTIONS = (
    Action(path="/webhooks/add", call="addWebhook", run=add),
    Action(path="/webhooks/{webhook}/rotate", call="rotateWebhookSecret", run=rotate),
    Action(path="/webhooks/{webhook}/switch", call="switchWebhook", run=switch),
    Action(path="/webhooks/{webhook}/remove", call="removeWebhook", run=remove),
    Action(path="/deliveries/{delivery}/resend", call="resendDelivery", run=resend),
)
