"""Commands about webhooks: who is told of ends, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click
from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.submit import tags_of
from holdfast.cli.tables import facts, mapping, moment, table
from holdfast.webhooks import Delivery, DeliveryPage, Webhook
from holdfast.webhooks.values import ENDS

T = TypeVar("T")


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def webhooks(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List webhooks; add, remove, rotate, see and repeat deliveries."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = [_masked(one) for one in on_store(url, lambda app: app.webhooks.list())]
    answer(found, as_json=as_json, show=lambda: _show_all(found))


@webhooks.command()
@click.argument("address", metavar="ADDRESS")
@click.option("--state", "states", multiple=True, type=click.Choice(ENDS), help="Only such ends.")
@click.option("--type", "types", multiple=True, help="Only jobs of this type.")
@click.option("--queue", "queues", multiple=True, help="Only jobs of this queue.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only jobs so tagged.")
@click.option("--include-result", is_flag=True, help="Send the job's result, too.")
@click.option("--description", default="", help="What it is for.")
@store_options
@click.pass_context
def add(
    ctx: click.Context, /, address: str, url: str | None, as_json: bool, **asked: object
) -> None:
    """Tell an address of ends from now on; shows the secret, once."""
    wanted = {name: value for name, value in asked.items() if value}
    wanted["tags"] = tags_of(asked["tags"])  # type: ignore[arg-type]  # click made a tuple
    made = _on(ctx, url, lambda app: app.webhooks.add(address, **wanted))  # type: ignore[arg-type]
    answer(made, as_json=as_json, show=lambda: _show_one(made))


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@store_options
@click.pass_context
def remove(ctx: click.Context, webhook_id: str, url: str | None, as_json: bool) -> None:
    """Tell an address no more."""
    _on(ctx, url, lambda app: app.webhooks.remove(webhook_id))
    told = {"webhook": webhook_id, "removed": True}
    answer(told, as_json=as_json, show=lambda: click.echo(f"webhook {webhook_id} is removed"))


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@click.option("--keep", default=1, show_default=True, help="Older secrets that stay good.")
@store_options
@click.pass_context
def rotate(ctx: click.Context, webhook_id: str, keep: int, url: str | None, as_json: bool) -> None:
    """Sign with a new secret beside the old one; shows both."""
    after = _on(ctx, url, lambda app: app.webhooks.rotate(webhook_id, keep=keep))
    answer(after, as_json=as_json, show=lambda: _show_one(after))


@webhooks.command()
@click.option("--rotate", is_flag=True, help="Make a new one beside it.")
@store_options
@click.pass_context
def secret(ctx: click.Context, rotate: bool, url: str | None, as_json: bool) -> None:
    """Show what signs messages to the callback addresses of jobs."""
    found = _on(ctx, url, lambda app: app.webhooks.callback_secrets(rotate=rotate))
    answer(found, as_json=as_json, show=lambda: click.echo("\n".join(found)))


@webhooks.command()
@click.argument("webhook_id", metavar="ID", required=False)
@click.option("--limit", default=50, show_default=True, help="At most so many.")
@click.option("--cursor", help="From the page before.")
@store_options
@click.pass_context
def deliveries(  # one parameter per option
    ctx: click.Context,
    webhook_id: str | None,
    limit: int,
    cursor: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show what was delivered, or why not, newest first; ID may be callback."""
    page = _on(
        ctx, url, lambda app: app.webhooks.deliveries(webhook_id, limit=limit, cursor=cursor)
    )
    answer(page, as_json=as_json, show=lambda: _show_deliveries(page))


@webhooks.command()
@click.argument("delivery_id", metavar="DELIVERY")
@store_options
@click.pass_context
def resend(ctx: click.Context, delivery_id: str, url: str | None, as_json: bool) -> None:
    """Send a message again, under the same message id."""
    sent = _on(ctx, url, lambda app: app.webhooks.resend(delivery_id))
    answer(sent, as_json=as_json, show=lambda: click.echo(f"delivery {sent.id} is {sent.state}"))


def _on(ctx: click.Context, url: str | None, operate: Callable[[Holdfast], Awaitable[T]]) -> T:
    return on_store(url or ctx.obj, operate)


def _masked(webhook: Webhook) -> Webhook:
    return replace(webhook, secrets=tuple("whsec_***" for _ in webhook.secrets))


def _show_all(found: Sequence[Webhook]) -> None:
    table(
        ("ID", "ADDRESS", "ENABLED", "STATES", "TYPES", "QUEUES", "TAGS"),
        [
            (
                one.id,
                one.url,
                "yes" if one.enabled else "no",
                "all" if set(one.states) == set(ENDS) else ",".join(one.states),
                ",".join(one.types),
                ",".join(one.queues),
                mapping(dict(one.tags)),
            )
            for one in found
        ],
    )


def _show_one(webhook: Webhook) -> None:
    facts(
        [
            ("id", webhook.id),
            ("address", webhook.url),
            *(("secret", secret) for secret in webhook.secrets),
        ]
    )


def _show_deliveries(page: DeliveryPage) -> None:
    table(
        ("DELIVERY", "WEBHOOK", "JOB", "STATE", "ATTEMPTS", "CREATED", "LAST ERROR"),
        [
            (
                one.id,
                one.webhook,
                one.job_id,
                one.state,
                len(one.attempts),
                moment(one.created_at),
                _last_error(one),
            )
            for one in page.deliveries
        ],
    )
    if page.next_cursor:
        click.echo(f"more with --cursor {page.next_cursor}")


def _last_error(delivery: Delivery) -> str:
    return next((a.error for a in reversed(delivery.attempts) if a.error), "")
