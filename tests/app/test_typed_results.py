"""Results as the type that a task returns."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, JobFailedError, PermanentError, ValidationError, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Invoice:
    number: int
    total: Decimal


def made_app() -> Holdfast:
    return Holdfast("memory://")


@pytest.mark.req("A-5")
async def test_result_has_the_annotated_type() -> None:
    app = made_app()

    @app.task("invoice")
    async def invoice(number: int) -> Invoice:
        return Invoice(number, Decimal("1.10"))

    @app.task("by_number")
    def by_number() -> dict[int, Path]:
        return {1: Path("/a")}

    @app.task("raw")
    def raw() -> bytes:
        return b"\x00\xff"

    @app.task("unknown")
    def unknown() -> Mapping[str, int]:
        return {"a": 1}

    async with app:
        jobs = [
            await invoice.submit(7),
            await by_number.submit(),
            await raw.submit(),
            await unknown.submit(),
        ]
        await Worker(app).run(burst=True)

        assert Invoice(7, Decimal("1.10")) == await invoice.result(jobs[0])
        assert {1: Path("/a")} == await by_number.result(jobs[1].job_id, timeout=5)
        assert b"\x00\xff" == await raw.result(jobs[2])
        assert {"a": 1} == await unknown.result(jobs[3])
        blocking = await asyncio.to_thread(invoice.result_sync, jobs[0], timeout=5)
        assert Invoice(7, Decimal("1.10")) == blocking


async def test_job_without_a_result_raises_its_failure() -> None:
    app = made_app()

    @app.task("broken")
    async def broken() -> int:
        raise PermanentError("no", code="NEVER")

    @app.task("odd")
    async def odd() -> int:
        return "text"  # type: ignore[return-value]  # what a wrong annotation looks like

    async with app:
        first, second = await broken.submit(), await odd.submit()
        await Worker(app).run(burst=True)

        with pytest.raises(JobFailedError, match=r"ended FAILED: NEVER: no") as caught:
            await broken.result(first)
        with pytest.raises(ValidationError, match="does not fit the return type of the task"):
            await odd.result(second)
        waiting = await broken.using(delay=60).submit()
        with pytest.raises(TimeoutError):
            await broken.result(waiting, timeout=0.01)

    assert ("FAILED", first.job_id) == (caught.value.state, caught.value.job_id)
