"""Killing attempts shows which tasks survive a crash."""

from __future__ import annotations

import asyncio
import sys

import pytest

from holdfast import Holdfast, JobContext, SyncJobContext
from holdfast.testing import CrashVerdict, Sandbox, crash_points, crash_points_sync, effect

THIS = sys.modules[__name__].__name__


class Bank:
    """A service outside the queue that keeps its state."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.charges: list[str] = []
        self.cleaned = 0

    def charge(self, key: str) -> None:
        self.charges.append(key)

    def charge_once(self, key: str) -> None:
        if key not in self.charges:
            self.charges.append(key)


bank = Bank()
app = Holdfast("memory://")


def charge_outside(key: str) -> None:
    bank.charge(key)


async def charge_outside_async(key: str) -> None:
    await asyncio.sleep(0)
    bank.charge_once(key)


@app.task("charge.repeating")
async def repeating(ctx: JobContext, order: str) -> None:
    bank.charge(order)
    effect("charged")
    await ctx.report_progress(100)


@app.task("charge.idempotent")
async def idempotent(ctx: JobContext, order: str) -> str:
    bank.charge_once(order)
    effect("charged")
    await ctx.checkpoint("charged")
    await ctx.log("info", "charged")
    await ctx.spawn(repeating, {"order": "child"}, key="receipt")
    return order


@app.task("charge.cleaning", max_attempts=1)
async def cleaning(order: str) -> None:
    try:
        bank.charge_once(order)
        effect("charged")
    finally:
        bank.cleaned += 1


@app.task("charge.plain")
def plain(ctx: SyncJobContext, order: str) -> None:
    try:
        charge_outside(order)
        ctx.checkpoint("charged")
    finally:
        bank.cleaned += 1


@app.task("charge.outside")
async def outside(order: str) -> None:
    await charge_outside_async(order)


@app.task("charge.submitting")
async def submitting(order: str) -> None:
    await repeating.submit(order)


@app.task("charge.many")
async def many(ctx: JobContext) -> None:
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            group.create_task(ctx.checkpoint(name))
            group.create_task(asyncio.sleep(0.001))  # a step that is none of ours
    bank.charge_once("all")


def reset(_: Sandbox) -> None:
    bank.reset()


def charged_once(box: Sandbox) -> None:
    assert ["7"] == bank.charges, f"charged {len(bank.charges)} times"


async def test_a_task_that_repeats_its_effect_is_unsafe() -> None:
    report = await crash_points(repeating, "7", prepare=reset, check=charged_once)

    assert [
        ("before the first line", CrashVerdict.SAFE),
        ("after effect 'charged'", CrashVerdict.UNSAFE),
        ("before report_progress", CrashVerdict.UNSAFE),
        ("after report_progress", CrashVerdict.UNSAFE),
        ("before the outcome is written", CrashVerdict.UNSAFE),
    ] == [(point.name, point.verdict) for point in report.points]
    assert not report.idempotent
    with pytest.raises(AssertionError, match=r"5 crash points, 4 of them unsafe") as caught:
        report.assert_idempotent()
    assert "  1  UNSAFE       after effect 'charged': AssertionError: charged 2 times" in str(
        caught.value
    )


async def test_a_task_that_survives_every_crash_passes() -> None:
    def check(box: Sandbox) -> None:
        assert ["7", "child"] == bank.charges[:2]
        assert 1 == len(box.submitted(repeating))
        assert "7" == box.assert_submitted(idempotent).result

    report = await crash_points(idempotent, order="7", prepare=reset, check=check)

    report.assert_idempotent()
    names = [point.name for point in report.points]
    assert "before spawn of charge.repeating" in names
    assert "after checkpoint" in names
    assert 9 == len(names)


async def test_a_killed_attempt_runs_no_finally() -> None:
    cleaned = []

    def check(box: Sandbox) -> None:
        cleaned.append(bank.cleaned)

    report = await crash_points(cleaning, "7", prepare=reset, check=check)

    # undisturbed once; killed before, at the effect, and after the handler had cleaned up
    assert [1, 1, 1, 2] == cleaned
    assert 3 == len(report.points)


def test_plain_functions_are_killed_the_same_way() -> None:
    cleaned = []

    def check(box: Sandbox) -> bool:
        cleaned.append(bank.cleaned)
        return len(bank.charges) == 1

    report = crash_points_sync(
        plain, order="7", prepare=reset, check=check, effects=[f"{THIS}.charge_outside"]
    )

    assert [
        ("before the first line", "SAFE", ""),
        (f"before {THIS}.charge_outside", "SAFE", ""),
        (f"after {THIS}.charge_outside", "UNSAFE", "the check returned False"),
        ("before checkpoint", "UNSAFE", "the check returned False"),
        ("after checkpoint", "UNSAFE", "the check returned False"),
        ("before the outcome is written", "UNSAFE", "the check returned False"),
    ] == [(p.name, p.verdict, p.detail) for p in report.points]
    assert [1, 1, 1, 1, 1, 1, 2] == cleaned


async def test_named_coroutine_functions_are_crash_points() -> None:
    effects = [f"{THIS}.charge_outside_async"]

    report = await crash_points(outside, "7", prepare=reset, check=charged_once, effects=effects)

    report.assert_idempotent()
    assert [f"before {effects[0]}", f"after {effects[0]}"] == [p.name for p in report.points[1:3]]


async def test_a_job_submitted_twice_is_unsafe() -> None:
    def check(box: Sandbox) -> None:
        box.assert_submitted(repeating)

    report = await crash_points(submitting, "7", prepare=reset, check=check)

    assert [
        ("before submission of charge.repeating", "SAFE"),
        ("after submission of charge.repeating", "UNSAFE"),
        ("before the outcome is written", "UNSAFE"),
    ] == [(p.name, p.verdict) for p in report.points[1:]]


async def test_a_kill_stops_the_tasks_an_attempt_started() -> None:
    def check(box: Sandbox) -> None:
        assert ["all"] == bank.charges

    report = await crash_points(many, prepare=reset, check=check)

    report.assert_idempotent()
    assert 6 == len(report.points)


async def test_a_task_that_fails_without_a_crash_is_refused() -> None:
    def check(box: Sandbox) -> None:
        raise AssertionError("always wrong")

    with pytest.raises(AssertionError, match=r"pass without a crash: .*always wrong"):
        await crash_points(idempotent, order="7", prepare=reset, check=check)


async def test_a_point_that_is_not_reached_again_is_reported() -> None:
    outcomes = iter([True] + [False] * 20)

    @app.task("charge.varying")
    async def varying(ctx: JobContext) -> None:
        if next(outcomes):
            await ctx.log("info", "only once")

    report = await crash_points(varying, check=lambda box: True)

    assert CrashVerdict.NOT_REACHED in [point.verdict for point in report.points]
    assert not report.idempotent
