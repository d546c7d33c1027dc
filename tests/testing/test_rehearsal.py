"""A rehearsal runs a task inline and records what it did with its context."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from holdfast import (
    DuplicateError,
    Holdfast,
    JobCancelledError,
    JobContext,
    PermanentError,
    StaleLeaseError,
    SyncJobContext,
    ValidationError,
)
from holdfast.testing import Rehearsal

app = Holdfast("memory://")


@dataclass
class Page:
    number: int


@app.task("book.print")
async def print_book(ctx: JobContext, pages: list[Page], copies: int = 1) -> int:
    done = ctx.restore(int) or 0
    for page in pages[done:]:
        await ctx.report_progress(100 * page.number // len(pages), f"page {page.number}")
        await ctx.log("info", "printed", page=page.number)
        await ctx.checkpoint(page.number)
    await ctx.spawn("book.bind", {"copies": copies}, key="bind")
    await ctx.spawn("book.bind", {"copies": copies}, key="bind")
    return len(pages) - done


@app.task("book.count")
def count(ctx: SyncJobContext) -> object:
    ctx.report_progress(50)
    ctx.checkpoint(b"\xff")
    ctx.spawn(print_book, {"pages": []})
    return sum(value for value in ctx.dependency_results().values() if isinstance(value, int))


PAGES = [Page(1), Page(2)]


async def test_a_rehearsal_records_everything_the_handler_did() -> None:
    rehearsal = Rehearsal(print_book)

    returned = await rehearsal(PAGES, copies=3)

    assert 2 == returned
    assert [(50, "page 1"), (100, "page 2")] == [(p.percent, p.message) for p in rehearsal.progress]
    assert [1, 2] == rehearsal.checkpoints
    assert [{"page": "1"}, {"page": "2"}] == [line.fields for line in rehearsal.logs]
    [child] = rehearsal.spawned
    assert ("book.bind", {"copies": 3}, "bind") == (child.type, child.payload, child.key)


async def test_a_handler_finds_the_checkpoint_and_attempt_it_is_given() -> None:
    rehearsal = Rehearsal(print_book, attempt=2, checkpoint=1)

    assert 1 == await rehearsal(PAGES)


async def test_cancelling_stops_the_handler_at_its_next_checkpoint() -> None:
    rehearsal = Rehearsal(print_book, cancel_at=3)

    with pytest.raises(JobCancelledError):
        await rehearsal(PAGES)

    assert [1] == rehearsal.checkpoints


async def test_a_lost_lease_stops_the_handler_and_keeps_nothing() -> None:
    rehearsal = Rehearsal(print_book, lose_lease_at=3)

    with pytest.raises(StaleLeaseError):
        await rehearsal(PAGES)

    assert [] == rehearsal.checkpoints


async def test_a_rehearsal_can_be_cancelled_before_it_starts() -> None:
    rehearsal = Rehearsal(print_book)
    rehearsal.cancel("enough")

    with pytest.raises(JobCancelledError, match="enough"):
        await rehearsal(PAGES)


def test_plain_functions_are_rehearsed_without_a_loop() -> None:
    rehearsal = Rehearsal(count, dependency_results={"a": 2, "b": None, "c": 40})

    assert 42 == rehearsal()
    assert [b"\xff"] == rehearsal.checkpoints
    assert [50] == [progress.percent for progress in rehearsal.progress]
    assert ["book.print"] == [child.type for child in rehearsal.spawned]


async def test_plain_functions_are_rehearsed_inside_a_loop_too() -> None:
    assert 0 == Rehearsal(count)()


async def test_calling_a_plain_task_works_inside_a_loop() -> None:
    assert 0 == count()


async def test_arguments_that_do_not_survive_json_are_refused() -> None:
    with pytest.raises(PermanentError, match=r"Expected `int`, got `str` - at `\$.copies`"):
        await Rehearsal(print_book)([], copies="many")  # type: ignore[arg-type]


@app.task("book.sell")
async def sell(ctx: JobContext) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("UPDATE stock SET books = books - 1")


@app.task("book.restock")
def restock(ctx: SyncJobContext) -> None:
    with ctx.transaction() as connection:
        connection.execute("UPDATE stock SET books = books + 1")


async def test_a_transaction_needs_a_worker_and_a_database() -> None:
    with pytest.raises(PermanentError, match="needs a job that runs in a worker on postgresql://"):
        await Rehearsal(sell)()
    with pytest.raises(PermanentError, match="needs a job that runs in a worker on postgresql://"):
        Rehearsal(restock)()
    with pytest.raises(PermanentError, match="needs a job that runs in a worker on postgresql://"):
        await sell()


@app.task("book.order")
async def order(ctx: JobContext, number: int) -> list[str]:
    urgent = count.using(priority="HIGH", tags={"a": "b"})
    return [
        await ctx.spawn(urgent.submission(), delay=60),
        await ctx.spawn(urgent),
        await ctx.spawn("book.bind", 1, idempotency_key="bind"),
        await ctx.spawn("book.bind", number, idempotency_key="bind"),
    ]


async def test_a_rehearsal_keeps_everything_that_a_spawn_was_given() -> None:
    rehearsal = Rehearsal(order)

    ids = await rehearsal(1)

    assert ids == [*(child.id for child in rehearsal.spawned), ids[2]]
    assert [
        ("book.count", {}, {"priority": "HIGH", "tags": {"a": "b"}, "delay": 60}),
        ("book.count", None, {"priority": "HIGH", "tags": {"a": "b"}}),
        ("book.bind", 1, {"idempotency_key": "bind"}),
    ] == [(child.type, child.payload, child.options) for child in rehearsal.spawned]


async def test_a_rehearsal_refuses_what_a_worker_would_refuse() -> None:
    with pytest.raises(DuplicateError):
        await Rehearsal(order)(2)

    @app.task("book.wrong")
    def wrong(ctx: SyncJobContext) -> None:
        ctx.spawn("book.bind", 1, priority="SOMEDAY")

    with pytest.raises(ValidationError, match="priority"):
        Rehearsal(wrong)()
    with pytest.raises(ValidationError, match="priority"):
        wrong()
