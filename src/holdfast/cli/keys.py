"""Commands about API keys: create, list, revoke."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import timedelta

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import facts, moment, table
from holdfast.http.api_keys import ApiKey, KeyTerms, Role, list_keys
from holdfast.http.key_changes import Actor, create_key, revoke_key


@click.group()
def keys() -> None:
    """Create, list or revoke the API keys of a service. Needs the store, not the service's URL."""


@keys.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help="What the key may do.",
)
@click.option(
    "--namespace", default="", metavar="NAME", help="The one namespace that the key sees."
)
@click.option("--expires-in", type=SPAN, help="Expire after this time.")
@click.option("--rate", type=int, metavar="N", help="At most N requests per second.")
@click.option("--live-jobs", type=int, metavar="N", help="At most N unfinished jobs at a time.")
@store_options
def create(
    name: str,
    role: str,
    namespace: str,
    expires_in: timedelta | None,
    rate: int | None,
    live_jobs: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Create a key. The secret is printed once and stored nowhere."""

    async def operate(app: Holdfast) -> tuple[ApiKey, str]:
        expires_at = None
        if expires_in is not None:
            expires_at = app.store.now() + expires_in
        terms = KeyTerms(
            name=name,
            role=Role(role),
            namespace=namespace,
            expires_at=expires_at,
            rate=rate,
            live_jobs=live_jobs,
        )
        return await create_key(app.store, terms, app.randomness, _actor())

    key, secret = on_store(url, operate, new=True)
    created = {**_shown(key), "secret": secret}
    answer(created, as_json=as_json, show=lambda: facts(list(created.items())))


@keys.command("list")
@store_options
def list_(url: str | None, as_json: bool) -> None:
    """List keys, revoked and expired ones too; never their secrets."""

    async def operate(app: Holdfast) -> list[tuple[ApiKey, bool]]:
        now = app.store.now()
        return [(key, key.is_valid(now)) for key in await list_keys(app.store)]

    found = on_store(url, operate)
    answer(
        [{**_shown(key), "counts": counts} for key, counts in found],
        as_json=as_json,
        show=lambda: table(
            ("ID", "NAME", "ROLE", "NAMESPACE", "CREATED", "EXPIRES", "COUNTS"),
            [
                (
                    key.id,
                    key.name,
                    key.role,
                    key.namespace or "-",
                    moment(key.created_at),
                    moment(key.expires_at) if key.expires_at else "never",
                    "yes" if counts else "revoked" if key.revoked_at else "expired",
                )
                for key, counts in found
            ],
        ),
    )


@keys.command()
@click.argument("key_id", metavar="ID")
@store_options
def revoke(key_id: str, url: str | None, as_json: bool) -> None:
    """Revoke a key; services refuse it within a second."""
    key = on_store(url, lambda app: revoke_key(app.store, key_id, _actor()))
    answer(
        _shown(key),
        as_json=as_json,
        show=lambda: click.echo(f"key {key.id} ({key.name}) is revoked"),
    )


def _shown(key: ApiKey) -> dict[str, object]:
    fields = msgspec.structs.asdict(key)
    return {name: value for name, value in fields.items() if name != "digest"}


def _actor() -> Actor:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    return Actor(user, socket.gethostname())
