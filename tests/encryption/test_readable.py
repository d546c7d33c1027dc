"""What stays readable at rest is exactly what the documentation lists."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, JobContext, PermanentError, State, Worker
from holdfast.http.api_keys import KeyTerms, Role
from holdfast.http.key_changes import create_key
from holdfast.store import Claim
from tests.architecture import tree
from tests.encryption.conftest import every_byte
from tests.worker.rig import ended

if TYPE_CHECKING:
    from holdfast.encryption import KeyRing
    from tests.conformance.stores import Place

PAGE = (tree.ROOT / "docs" / "encryption.md").read_text("utf-8")
MARKS = {
    name: f"mark{number:02}x"
    for number, name in enumerate(
        (
            *("type", "queue", "tag name", "tag value", "correlation id", "idempotency key"),
            *("limit key", "callback address", "failure code", "reason of an operator"),
            *("worker name", "payload", "header name", "header value", "result", "checkpoint"),
            *("progress message", "log message", "log field", "failure message"),
            *("stack trace", "webhook address", "API key name"),
        ),
        10,
    )
}


def _app(place: Place, ring: KeyRing) -> Holdfast:
    app = Holdfast(place.url, keys=ring)

    @app.task(MARKS["type"], queue=MARKS["queue"])
    async def work(ctx: JobContext, word: str) -> str:
        await ctx.report_progress(50, MARKS["progress message"])
        await ctx.log("INFO", MARKS["log message"], {"field": MARKS["log field"]})
        await ctx.checkpoint({"kept": MARKS["checkpoint"]})
        return MARKS["result"]

    @app.task("fails", queue=MARKS["queue"])
    async def fail() -> None:
        stack = ValueError(MARKS["stack trace"])
        raise PermanentError(MARKS["failure message"], code=MARKS["failure code"]) from stack

    return app


async def _use(app: Holdfast) -> None:
    """Write every mark."""
    worker = Worker(app, queues=[MARKS["queue"]], name=MARKS["worker name"])
    running = asyncio.create_task(worker.run())
    done = await app.submit(
        MARKS["type"],
        {"word": MARKS["payload"]},
        tags={MARKS["tag name"]: MARKS["tag value"]},
        headers={MARKS["header name"]: MARKS["header value"]},
        correlation_id=MARKS["correlation id"],
        idempotency_key=MARKS["idempotency key"],
        limit_key=MARKS["limit key"],
        callback_url=f"https://example.com/{MARKS['callback address']}",
    )
    failed = await app.submit("fails")
    stopping = await app.submit("stops", queue="other")
    await app.store.claim(Claim(queues=("other",), limit=1, worker="w", token="t"))
    await app.cancel(stopping.job_id, reason=MARKS["reason of an operator"])
    terms = KeyTerms(name=MARKS["API key name"], role=Role.ADMIN)
    await create_key(app.store, terms, app.randomness)
    await app.webhooks.add(f"https://example.com/{MARKS['webhook address']}")
    assert State.COMPLETED is await ended(app, done.job_id)
    assert State.FAILED is await ended(app, failed.job_id)
    worker.stop()
    await running


@pytest.mark.req("M-12")
async def test_readable_fields_are_those_of_the_documentation(
    shared_place: Place, ring: KeyRing
) -> None:
    app = _app(shared_place, ring)
    async with app:
        await _use(app)
        kept = await every_byte(shared_place)

    readable = {name for name, mark in MARKS.items() if mark.encode() in kept}

    assert _documented() == readable


def _documented() -> set[str]:
    (table,) = re.findall(r"\| readable at rest \|.*?\n\n", PAGE, re.DOTALL)
    rows = set(re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE))
    return {name for name in MARKS if name in rows}


def test_documentation_lists_marked_fields_only() -> None:
    (table,) = re.findall(r"\| readable at rest \|.*?\n\n", PAGE, re.DOTALL)
    rows = re.findall(r"^\| (\w[^|]+?) \|", table, re.MULTILINE)

    assert {"readable at rest", "ids, states, times, numbers, priorities"} == set(rows) - set(MARKS)
