"""``holdfast operations``, and ``--background`` of the commands that change many jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast import Holdfast
from holdfast.observe import Silent
from holdfast.operations.bulk_runner import BulkRunner

if TYPE_CHECKING:
    from tests.cli.conftest import Place


def test_operation_is_started_watched_listed_and_cancelled(place: Place) -> None:
    for _ in range(2):
        place.json("submit", "greet", '{"name": "Ann"}')
    raised = place.json("operations", "start", "reprioritise", "--set-priority", "HIGH", "--type",
                        "greet")  # fmt: skip
    stopped = place.json("cancel", "--type", "greet", "--reason", "wrong", "--background")
    other = place.json("delete", "--state", "CANCELLED", "--background", "--dry-run")
    place.json("retry", "--state", "FAILED", "--background", "--delay", "60")
    place.run("operations", "cancel", other["id"])
    asyncio.run(_run(place.url))

    shown = place.json("operations", "show", stopped["id"], "--watch")
    text = place.run("operations", "show", stopped["id"]).output
    listed = place.run("operations").output

    assert ("WAITING", 2) == (raised["state"], raised["matched"])
    assert ("COMPLETED", 2, {"reason": "wrong"}) == (
        shown["state"],
        shown["done"],
        shown["options"],
    )
    assert "COMPLETED: 2 of 2" in text
    assert "cancel" in listed
    assert "delete (dry run)" in listed
    assert 4 == len(place.json("operations"))
    assert 2 == len(place.json("operations", "--limit", "2"))


def test_wrong_operations_exit_with_their_codes(place: Place) -> None:
    place.json("queues")

    assert 1 == place.run("operations", "show", "x").exit_code
    assert 2 == place.run("operations", "start", "cancel").exit_code
    assert 2 == place.run("operations", "start", "explode", "--type", "t").exit_code
    assert 2 == place.run("operations", "start", "delete", "--type", "t", "--force").exit_code


async def _run(url: str) -> None:
    async with Holdfast(url) as app:
        for _ in range(2):
            await BulkRunner(app.store, "one", Silent()).once()
