"""When a BullMQ schedule is next due."""

from __future__ import annotations

import pytest

from holdfast.store.redis.bullmq_schedulers import next_time

MINUTE = 60_000
NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("plan", "previous", "count", "now", "expected"),
    [
        ({"every": "1000"}, 5000, 1, 5500, 6000),
        ({"every": "1000", "offset": "24"}, 5024, 1, 9500, 10_024),
        ({"every": "1000", "limit": "3"}, 5000, 3, 5500, None),
        ({"every": "1000", "limit": "3"}, 5000, 2, 5500, 6000),
        ({"every": "1000", "endDate": "5400"}, 5000, 1, 5500, None),
        ({"pattern": "*/5 * * * *"}, NOON, 1, NOON, NOON + 5 * MINUTE),
        ({"pattern": "*/10 * * * * *"}, NOON, 1, NOON + 1, NOON + 10_000),
        ({"pattern": "0 14 * * *", "tz": "Europe/Berlin"}, NOON, 1, NOON, NOON + 60 * MINUTE),
        ({"pattern": "not a pattern"}, NOON, 1, NOON, None),
        ({"pattern": "* * * * *", "tz": "Nowhere/None"}, NOON, 1, NOON, None),
    ],
)
def test_next_time_follows_the_plan(
    plan: dict[str, str], previous: int, count: int, now: int, expected: int | None
) -> None:
    assert expected == next_time(plan, previous=previous, count=count, now=now)
