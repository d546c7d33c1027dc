"""What most commands share: opening the store, one call on it, and output as table or JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import msgspec

from holdfast import config
from holdfast.app import Holdfast
from holdfast.cli.app_path import find_app
from holdfast.cli.errors import UNREACHABLE, CommandError
from holdfast.encryption import require_keys
from holdfast.observe.logging import escaped_json
from holdfast.operations.operations import Operations
from holdfast.store.urls import is_postgres, scheme, with_option

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

url_option = click.option("--url", metavar="URL", help="The store, such as sqlite:///jobs.db.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def store_options(command: F) -> F:
    """Add --url and --json to a command."""
    return url_option(json_option(command))


def on_store(
    url: str | None,
    operate: Callable[[Holdfast], Awaitable[T]],
    *,
    new: bool = False,
    app: str | None = None,
    contents: bool = False,
) -> T:
    """Open the store, run one operation, close the store.

    Only ``new`` creates a missing file or schema: a command that reads from the wrong place
    leaves nothing behind. ``app`` names an app whose own settings apply. ``contents`` is whether
    the operation reads or writes what keys encrypt; without the keys it is an error.
    """
    settings = config.load(flags={"url": url, "app": app})
    chosen = find_app(settings)[1] if app else plain_app(settings)
    if not new and not chosen.shares_store:
        chosen.url = opened_as_is(chosen.url, settings.source("url"))

    async def work() -> T:
        async with chosen:
            if contents and isinstance(chosen.operations, Operations):  # a service has the keys
                await require_keys(chosen.store)
            return await operate(chosen)

    return asyncio.run(work())


def plain_app(settings: config.Settings) -> Holdfast:
    """Return an app without tasks over the store the settings name, with their keys."""
    given = config.for_app(settings)
    return Holdfast(
        settings.text("url"),
        keys=config.key_ring(settings),
        queues=given.profiles,
        limits=given.limits,
        retention=given.retention,
        webhooks=given.webhooks,
    )


def opened_as_is(url: str, source: str) -> str:
    """Return a URL that opens the store as it is: neither created nor migrated."""
    if scheme(url) == "sqlite":
        _must_exist(url, source)
    if is_postgres(url):
        return with_option(url, "migrate=false&durability=server")
    return url


def _must_exist(url: str, source: str) -> None:
    from holdfast.store.sqlite.location import Location

    path = Location.from_url(url).path
    if not path.exists():
        hint = f" (from {source}); set the store with --url or $HOLDFAST_URL"
        raise CommandError(f"no store at {path}{hint}", UNREACHABLE)


def json_line(value: object) -> str:
    """Return a value as JSON in which terminal controls and bidi characters are escaped."""
    return escaped_json(msgspec.json.encode(value).decode())


def answer(value: object, *, as_json: bool, show: Callable[[], None]) -> None:
    """Print a value as JSON or as text."""
    if as_json:
        click.echo(json_line(value))
    else:
        show()
