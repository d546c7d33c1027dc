"""From a payload to a function's arguments: every kind of annotation and mismatch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from holdfast import FailureCategory, Holdfast, JobContext, State, SyncJobContext
from tests.app.conftest import Drain


class Colour(StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    start: Point
    end: Point


class Box(pydantic.BaseModel):
    width: int
    label: str = pydantic.Field(default="box", max_length=5)


class Move(TypedDict):
    by: int
    note: NotRequired[str]


async def by_keys(to: str, count: int = 1) -> object:
    return [to, count]


async def any_keys(first: int, **rest: object) -> object:
    return [first, rest]


async def whole_text(payload: str) -> object:
    return payload.upper()


async def whole_bytes(payload: bytes) -> object:
    return payload.hex()


async def whole_anything(payload: Any) -> object:
    return payload


async def whole_mapping(payload: dict[str, object]) -> object:
    return payload


async def any_values(values: list[object], maybe: object | None) -> object:
    return [values, maybe]


async def whole_model(payload: Box) -> object:
    return payload.width * 2


async def models(point: Point, line: Line, box: Box, move: Move, colour: Colour) -> object:
    assert isinstance(line.end, Point)
    return [point.x + point.y, line.end.x, box.label, move["by"], colour is Colour.RED]


async def plain(
    when: datetime, numbers: list[int], maybe: int | None, pair: tuple[int, str]
) -> object:
    return [when.year, sum(numbers), maybe, pair[1]]


def with_context(ctx: SyncJobContext, to: str) -> object:
    return [ctx.type, to]


NINE = Box(width=9)


async def optional_models(
    box: Box | None = None, point: Point | None = None, size: Box = NINE
) -> object:
    return [box.width if box else None, point.x if point else None, size.width]


class Odd:
    pass


async def odd(thing: Odd) -> object:
    return None


class Sender:
    async def __call__(self, ctx: JobContext, to: str) -> object:
        return [ctx.type, to]


async def nothing() -> object:
    return "done"


async def unannotated(a, b=2):  # type: ignore[no-untyped-def]  # users write this, too
    return [a, b]


@pytest.mark.req("A-1", "M-12", "M-11")
@pytest.mark.parametrize(
    ("function", "payload", "result"),
    [
        (by_keys, {"to": "a"}, ["a", 1]),
        (by_keys, {"to": "a", "count": 3}, ["a", 3]),
        (any_keys, {"first": 1, "second": 2}, [1, {"second": 2}]),
        (whole_text, "hi", "HI"),
        (whole_bytes, b"\x00\xff", "00ff"),
        (whole_anything, [1, {"a": None}], [1, {"a": None}]),
        (whole_mapping, {"a": [1, None]}, {"a": [1, None]}),
        (any_values, {"values": [1, {"a": 2}], "maybe": "x"}, [[1, {"a": 2}], "x"]),
        (whole_model, {"width": 4}, 8),
        (
            models,
            {
                "point": {"x": 1, "y": 2},
                "line": {"start": {"x": 0}, "end": {"x": 5}},
                "box": {"width": 1},
                "move": {"by": 7},
                "colour": "red",
            },
            [3, 5, "box", 7, True],
        ),
        (
            plain,
            {"when": "2026-01-01T00:00:00Z", "numbers": [1, 2], "maybe": None, "pair": [1, "x"]},
            [2026, 3, None, "x"],
        ),
        (with_context, {"to": "a"}, ["t", "a"]),
        (optional_models, {}, [None, None, 9]),
        (optional_models, {"box": {"width": 1}, "size": {"width": 2}}, [1, None, 2]),
        (Sender(), {"to": "a"}, ["t", "a"]),
        (any_keys, {"first": 1}, [1, {}]),
        (nothing, None, "done"),
        (nothing, {}, "done"),
        (unannotated, {"a": 1}, [1, 2]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_payload_decodes_into_annotations(
    app: Holdfast, drain: Drain, function: Callable[..., object], payload: object, result: object
) -> None:
    app.register("t", function)
    job_id = (await app.submit("t", payload)).job_id

    await drain()

    job = await app.get(job_id)
    assert (State.COMPLETED, result, None) == (job.state, job.output, job.failure)


@pytest.mark.req("M-11", "M-12")
@pytest.mark.parametrize(
    ("function", "payload", "message"),
    [
        (by_keys, {"to": 1}, "`str`, got `int` - at `$.to`"),
        (by_keys, {"count": 1}, "missing required field `to`"),
        (by_keys, {"to": "a", "colour": "red"}, "unknown field `colour`"),
        (by_keys, ["a"], "Expected `object`, got `array`"),
        (by_keys, b"bytes", "it is bytes, expected JSON"),
        (any_keys, {"second": 2}, "first"),
        (models, {"line": {"start": {"x": "0"}, "end": {"x": 5}}}, "$.line.start.x"),
        (whole_model, {"width": 1, "label": "too long"}, "label"),
        (whole_text, 3, "Expected `str`, got `int`"),
        (plain, {"numbers": [1, "2"]}, "$.numbers[1]"),
        (nothing, {"a": 1}, "unknown field `a`"),
        (odd, {"thing": 1}, "cannot decode into Odd - at `$.thing`"),
        (optional_models, {"box": {}}, "width"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_payload_that_does_not_fit_fails_permanently_and_names_the_field(
    app: Holdfast, drain: Drain, function: Callable[..., object], payload: object, message: str
) -> None:
    job_id = (await app.submit("t", payload)).job_id
    app.register("t", function, on_mismatch="fail")

    await drain()

    job = await app.get(job_id)
    assert (State.FAILED, 1) == (job.state, job.attempt)
    assert job.failure is not None
    assert FailureCategory.PERMANENT is job.failure.category
    assert "PAYLOAD_INVALID" == job.failure.code
    assert message in job.failure.message


async def test_task_submits_the_arguments_of_its_function(app: Holdfast, drain: Drain) -> None:
    @app.task("t")
    async def task(ctx: JobContext, point: Point, box: Box, *, note: str = "") -> object:
        return [point.x, box.width, note, ctx.attempt]

    job_id = (await task.submit(Point(1), box=Box(width=2), note="n")).job_id
    await drain()

    assert [1, 2, "n", 1] == (await app.get(job_id)).output


async def test_task_refuses_arguments_its_function_would_refuse(app: Holdfast) -> None:
    @app.task("t")
    async def task(ctx: JobContext, to: str) -> None: ...

    for call, reason in (
        (task.submit, "missing a required argument: 'to'"),
        (lambda: task.submit(to="a", colour="red"), "got an unexpected keyword argument"),  # type: ignore[call-arg]
        (lambda: task.submit("a", "b"), "too many positional arguments"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=rf"^task\(to\): {reason}"):
            await call()


async def test_calling_a_task_runs_it_inline(app: Holdfast) -> None:
    @app.task("a")
    async def coroutine(ctx: JobContext, n: int) -> int:
        await ctx.report_progress(10)
        await ctx.log("INFO", "hello")
        return n + ctx.attempt

    @app.task("b")
    def function(ctx: SyncJobContext, n: int) -> int:
        ctx.checkpoint({"n": n})
        return n + ctx.attempt

    @app.task("c")
    def bare(n: int) -> int:
        return n

    assert (3, 3) == (await coroutine(2), bare(3))
    assert 0 == (await app.search()).total_count
    # A blocking context has no loop of its own to borrow here.
    assert 3 == await _in_thread(lambda: function(n=2))


async def test_result_that_cannot_be_stored_fails_the_job_permanently(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("t")
    async def task() -> object:
        return {"when": datetime(2026, 1, 1, tzinfo=UTC), "what": object()}

    job_id = (await task.submit()).job_id
    await drain()

    job = await app.get(job_id)
    assert job.failure is not None
    assert (State.FAILED, "RESULT_INVALID") == (job.state, job.failure.code)


async def _in_thread(call: Callable[[], object]) -> object:
    import asyncio

    return await asyncio.to_thread(call)
