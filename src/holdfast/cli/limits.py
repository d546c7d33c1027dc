"""Commands about limits: list, set, lift."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import moment, table
from holdfast.operations.limits import LimitInfo
from holdfast.store import LimitRule


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def limits(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List limits with what is used of them; set or lift one.

    A SCOPE is queue:NAME, task:TYPE or key:TYPE."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = url
        return
    found = on_store(url, lambda app: app.limit_states())
    answer(found, as_json=as_json, show=lambda: _show(found))


@limits.command("set")
@click.argument("scope")
@click.option("--concurrency", type=int, help="Jobs that may run at once.")
@click.option("--rate", type=int, help="Jobs that may start per period, evenly spaced.")
@click.option("--per", default="1", show_default=True, type=SPAN, help="The period of a rate.")
@click.option(
    "--burst", type=int, help="Jobs that may start at once after a pause.  [1 + rate / 10]"
)
@store_options
@click.pass_context
def set_(  # one parameter per option
    ctx: click.Context,
    scope: str,
    concurrency: int | None,
    rate: int | None,
    per: timedelta,
    burst: int | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Set a limit across all workers, whatever the code declares."""
    made = on_store(
        url or ctx.obj,
        lambda app: app.set_limit(scope, concurrency=concurrency, rate=rate, per=per, burst=burst),
    )
    answer(made, as_json=as_json, show=lambda: click.echo(f"{scope}: {_rule(made.rule)}"))


@limits.command()
@click.argument("scope")
@store_options
@click.pass_context
def lift(ctx: click.Context, scope: str, url: str | None, as_json: bool) -> None:
    """Lift a limit that was set at run time; what the code declares applies again."""

    async def operate(app: Holdfast) -> tuple[bool, LimitInfo | None]:
        set_ = [one.scope for one in await app.limit_states() if one.overridden]
        return scope in set_, await app.lift_limit(scope)

    was_set, left = on_store(url or ctx.obj, operate)
    text = f"{scope}: {_rule(left.rule)}" if left else f"{scope}: no limit"
    if not was_set:
        text = f"nothing was set at run time; {text}"
    answer(left, as_json=as_json, show=lambda: click.echo(text))


def _show(found: Sequence[LimitInfo]) -> None:
    table(
        ("SCOPE", "LIMIT", "RUNNING", "BURST USED", "NEXT START", "SET BY"),
        [
            (
                one.scope,
                _rule(one.rule),
                one.running,
                "-" if one.rule.rate is None else f"{one.started} of {one.rule.burst}",
                moment(one.until),
                "operator" if one.overridden else "code",
            )
            for one in found
        ],
    )


def _rule(rule: LimitRule) -> str:
    parts = [f"{rule.concurrency} at once"] if rule.concurrency is not None else []
    if rule.rate is not None:
        parts.append(f"{rule.rate} per {rule.per.total_seconds():g} s, bursts of {rule.burst}")
    return ", ".join(parts)
