"""Commands about webhooks: addresses that receive the ends of jobs, and deliveries."""

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
    """List webhooks; add, switch, rotate or remove one; show and resend deliveries."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = [_masked(one) for one in on_store(url, lambda app: app.webhooks.list())]
    answer(found, as_json=as_json, show=lambda: _show_all(found))


@webhooks.command()
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(ENDS), help="Only this final state."
)
@click.option("--type", "types", multiple=True, help="Only jobs of this type.")
@click.option("--queue", "queues", multiple=True, help="Only jobs of this queue.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only jobs with this tag.")
@click.option("--include-result", is_flag=True, help="Include the job's result.")
@click.option("--description", default="", help="A description.")
@store_options
@click.pass_context
def add(
    ctx: click.Context, /, address: str, url: str | None, as_json: bool, **given: object
) -> None:
    """Send the ends of jobs to an address from now on; prints the secret once."""
    wanted = {name: value for name, value in given.items() if value}
    wanted["tags"] = tags_of(given["tags"])  # type: ignore[arg-type]  # click made a tuple
    made = _on(ctx, url, lambda app: app.webhooks.add(address, **wanted))  # type: ignore[arg-type]
    answer(made, as_json=as_json, show=lambda: _show_one(made))


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@store_options
@click.pass_context
def remove(ctx: click.Context, webhook_id: str, url: str | None, as_json: bool) -> None:
    """Remove a webhook."""
    _on(ctx, url, lambda app: app.webhooks.remove(webhook_id))
    report = {"webhook": webhook_id, "removed": True}
    answer(report, as_json=as_json, show=lambda: click.echo(f"webhook {webhook_id} is removed"))


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@store_options
@click.pass_context
def disable(ctx: click.Context, webhook_id: str, url: str | None, as_json: bool) -> None:
    """Make no messages for a webhook until it is enabled again."""
    _switch(ctx, url, webhook_id, enabled=False, as_json=as_json)


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@store_options
@click.pass_context
def enable(ctx: click.Context, webhook_id: str, url: str | None, as_json: bool) -> None:
    """Make messages for a webhook again."""
    _switch(ctx, url, webhook_id, enabled=True, as_json=as_json)


def _switch(
    ctx: click.Context, url: str | None, webhook_id: str, *, enabled: bool, as_json: bool
) -> None:
    after = _on(ctx, url, lambda app: app.webhooks.switch(webhook_id, enabled=enabled))
    word = "enabled" if enabled else "disabled"
    shown = _masked(after)
    answer(shown, as_json=as_json, show=lambda: click.echo(f"webhook {webhook_id} is {word}"))


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@click.option(
    "--keep", default=1, show_default=True, help="The number of older secrets that stay valid."
)
@store_options
@click.pass_context
def rotate(ctx: click.Context, webhook_id: str, keep: int, url: str | None, as_json: bool) -> None:
    """Sign with a new secret beside the old one; prints both."""
    after = _on(ctx, url, lambda app: app.webhooks.rotate(webhook_id, keep=keep))
    answer(after, as_json=as_json, show=lambda: _show_one(after))


@webhooks.command()
@click.option("--rotate", is_flag=True, help="Add a new secret.")
@store_options
@click.pass_context
def secret(ctx: click.Context, rotate: bool, url: str | None, as_json: bool) -> None:
    """Show the secrets that sign messages to the callback addresses of jobs."""
    found = _on(ctx, url, lambda app: app.webhooks.callback_secrets(rotate=rotate))
    answer(found, as_json=as_json, show=lambda: click.echo("\n".join(found)))


@webhooks.command()
@click.argument("webhook_id", metavar="ID", required=False)
@click.option("--limit", default=50, show_default=True, help="At most this many.")
@click.option("--cursor", help="Continue after an earlier page.")
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
    """Show deliveries and their errors, newest first; ID may be callback."""
    page = _on(
        ctx, url, lambda app: app.webhooks.deliveries(webhook_id, limit=limit, cursor=cursor)
    )
    answer(page, as_json=as_json, show=lambda: _show_deliveries(page))


@webhooks.command()
@click.argument("delivery_id", metavar="DELIVERY")
@store_options
@click.pass_context
def resend(ctx: click.Context, delivery_id: str, url: str | None, as_json: bool) -> None:
    """Send a message again with the same message id."""
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
