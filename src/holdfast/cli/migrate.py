"""``holdfast migrate``: creates, upgrades or reverts a store's schema."""

from __future__ import annotations

import asyncio

import click

from holdfast import config
from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import USAGE, CommandError
from holdfast.cli.tables import facts, table
from holdfast.observe.redaction import redacted
from holdfast.store import SchemaMove, SchemaStatus, VersionedStore, open_store
from holdfast.store.urls import is_postgres


@click.command()
@click.option("--to", type=int, metavar="VERSION", help="Migrate to this version, up or down.")
@click.option("--lose-data", is_flag=True, help="Allow a downgrade that loses data.")
@click.option("--status", is_flag=True, help="List applied and pending migrations; change nothing.")
@store_options
def migrate(to: int | None, lose_data: bool, status: bool, url: str | None, as_json: bool) -> None:
    """Create the store's schema, or bring it up to date.

    --to migrates a PostgreSQL store to another version; 0 removes the schema. Stop programs of
    a later version before a downgrade: they would upgrade the schema again.
    """
    place = config.load(flags={"url": url}).text("url")
    if not is_postgres(place):
        _open(place, as_json=as_json, chosen=status or lose_data or to is not None)
        return
    store = open_store(place)
    assert isinstance(store, VersionedStore)
    if status:
        found, moved = asyncio.run(store.schema()), None
    else:
        found, moved = asyncio.run(_moved(store, to, lose=lose_data))
    report = {
        "url": redacted(place),
        "status": "PENDING" if found.pending else "UP_TO_DATE",
        "version": found.version,
        "applied": found.applied,
        "pending": found.pending,
    }
    if moved is not None:
        report |= {"up": moved.up, "down": moved.down}
    answer(report, as_json=as_json, show=lambda: _show(redacted(place), found, moved))


def _open(place: str, *, as_json: bool, chosen: bool) -> None:
    """Open a store that upgrades itself."""
    if chosen:
        raise CommandError("only a PostgreSQL store has versions to list or choose", USAGE)

    async def operate(app: Holdfast) -> str:
        app.store.now()  # opening it upgraded it; a service has no store to open
        return redacted(app.url)

    report = {"url": on_store(place, operate, new=True), "status": "UP_TO_DATE"}
    answer(report, as_json=as_json, show=lambda: click.echo(f"{report['url']} is up to date"))


async def _moved(
    store: VersionedStore, to: int | None, *, lose: bool
) -> tuple[SchemaStatus, SchemaMove]:
    moved = await store.migrate(to, lose=lose)
    return await store.schema(), moved


def _show(place: str, found: SchemaStatus, moved: SchemaMove | None) -> None:
    if moved is None:
        facts([("url", place), ("version", found.version)])
        click.echo()
        rows = [(name, "applied") for name in found.applied]
        table(("MIGRATION", "STATE"), [*rows, *((name, "pending") for name in found.pending)])
        return
    if moved.down:
        click.echo(f"{place}: reverted {', '.join(moved.down)}")
    if moved.up:
        click.echo(f"{place}: applied {', '.join(moved.up)}")
    if not (moved.up or moved.down):
        at = f"at version {found.version}" if found.pending else "up to date"
        click.echo(f"{place} is {at}")
