"""``holdfast demo --fill``: a week that looks like a company's, the same each time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.demo import demo
from holdfast.cli.demo.company import WORKERS
from holdfast.cli.demo.fill import WEEK, Week
from holdfast.cli.demo.stage import LiveCompany, set_the_scene
from holdfast.model.job import State
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

END = datetime(2026, 11, 18, 14, 0, tzinfo=UTC)


async def filled(jobs: int) -> Holdfast:
    clock = ManualClock(END - WEEK)
    app = Holdfast(store=MemoryStore(clock), clock=clock)
    week = Week(app, clock, jobs=jobs)
    await app.start()
    await week.fill(END)
    await set_the_scene(app, week)
    await LiveCompany(app, week).announce()
    return app


@pytest.mark.slow
async def test_week_has_everything_that_a_dashboard_shows() -> None:
    app = await filled(3000)

    counts = await app.count()
    groups = (await app.failure_groups(time_range=3600)).groups
    queues = {queue.name: queue for queue in await app.queues()}

    assert 3000 <= counts.total <= 4600
    assert set(State) - {State.CANCELLED, State.RETRYING} <= set(counts.by_state)
    assert "GATEWAY_UNAVAILABLE" == groups[0].code
    assert queues["reports"].paused
    assert 5 == len(await app.workers())
    assert 4 == len(await app.schedules.list())
    assert 2 == len(await app.limit_states())
    await app.close()


@pytest.mark.slow
async def test_live_company_goes_on_like_the_week_and_honours_drain() -> None:
    app = await filled(500)
    company = LiveCompany(app, Week(app, ManualClock(END), jobs=0))
    for name in WORKERS[1:]:
        await app.drain(name)

    working = await company.announce()
    rate = await Week(app, ManualClock(END), jobs=0).rate()

    assert WORKERS[:1] == working
    assert 4 == sum(worker.draining for worker in await app.workers())
    assert 0.1 <= rate <= 0.5
    await app.close()


@pytest.mark.slow
def test_fill_says_how_far_it_is_without_a_terminal(tmp_path: Path) -> None:
    done = CliRunner().invoke(demo, ["--fill", str(tmp_path / "week.db"), "--jobs", "200"])

    assert 0 == done.exit_code
    assert "a week of 200 jobs" in done.output
    assert "50 %" in done.output


@pytest.mark.slow
def test_fill_refuses_a_file_that_exists(tmp_path: Path) -> None:
    file = tmp_path / "week.db"
    file.touch()

    done = CliRunner().invoke(demo, ["--fill", str(file)])

    assert 0 != done.exit_code
    assert b"" == file.read_bytes()
