"""``holdfast schedules``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Place


def test_schedule_is_created_shown_changed_run_and_deleted(place: Place) -> None:
    place.json("queues")
    made = place.json(
        "schedules", "create", "daily", "greet", "0 7 * * *", "--tz", "Europe/Berlin",
        "--payload", '{"name": "Ann"}', "--queue", "side", "--tag", "a=1", "--timeout", "30",
    )  # fmt: skip
    at_seven = place.run("schedules", "show", "daily").output
    listed = place.run("schedules").output
    changed = place.json("schedules", "change", "daily", "--cron", "@hourly")
    paused = place.json("schedules", "pause", "daily")
    run = place.json("schedules", "run", "daily")
    text = place.run("schedules").output
    shown = place.run("schedules", "show", "daily").output
    place.run("schedules", "resume", "daily")

    assert ("At 07:00 every day", "side") == (made["words"], made["queue"])
    assert re.search(r"next run +\d{4}-\d\d-\d\d 07:00:00 (CET|CEST)\n", at_seven)
    assert re.search(r" 07:00:00 (CET|CEST) ", listed)
    assert {"name": "Ann"} == made["payload"]
    assert ("0 * * * *", True) == (changed["expression"], paused["paused"])
    assert "daily" in text
    assert "paused" in text
    assert run["job_id"] in shown
    assert 0 == place.run("schedules", "delete", "daily").exit_code
    assert 1 == place.run("schedules", "delete", "daily").exit_code
    assert [] == place.json("schedules")


def test_wrong_schedule_exits_with_usage(place: Place) -> None:
    place.json("queues")

    assert 2 == place.run("schedules", "create", "a", "t", "never").exit_code
    assert 2 == place.run("schedules", "create", "a", "t", "@daily", "--payload", "{").exit_code
