"""Commands about workers: list, drain, undrain."""

from __future__ import annotations

import click

from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.tables import moment, table
from holdfast.model.workers import WorkerInfo

MEBIBYTE = 1_048_576


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def workers(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List live workers; drain or undrain one."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = on_store(url, lambda app: app.workers())
    answer(found, as_json=as_json, show=lambda: _show(found))


@workers.command()
@click.argument("name")
@store_options
@click.pass_context
def drain(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Ask a worker to stop claiming; it finishes its jobs and stays up."""
    after = on_store(url or ctx.obj, lambda app: app.drain(name))
    answer(after, as_json=as_json, show=lambda: click.echo(f"worker {name} drains"))


@workers.command()
@click.argument("name")
@store_options
@click.pass_context
def undrain(ctx: click.Context, name: str, url: str | None, as_json: bool) -> None:
    """Ask a drained worker to claim again."""
    after = on_store(url or ctx.obj, lambda app: app.undrain(name))
    answer(after, as_json=as_json, show=lambda: click.echo(f"worker {name} claims again"))


def _show(found: list[WorkerInfo]) -> None:
    table(
        ("WORKER", "PID", "VERSION", "MEMORY", "RUNNING", "SINCE", "STATE", "QUEUES", "TYPES"),
        [
            (
                one.id,
                one.pid,
                "/".join(version for version in (one.version, one.app_version) if version) or "-",
                f"{one.memory / MEBIBYTE:.0f} MiB" if one.memory else "-",
                f"{one.running}/{one.slots}",
                moment(one.started_at),
                "draining" if one.draining else "working",
                ",".join(one.queues),
                ",".join(one.types),
            )
            for one in found
        ],
    )
