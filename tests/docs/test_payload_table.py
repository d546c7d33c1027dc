"""Every type that the documentation of payloads lists arrives as it was submitted."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, State, ValidationError, Worker
from tests.architecture import tree

PAGE = (tree.ROOT / "docs" / "payloads.md").read_text("utf-8")
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \|$", re.MULTILINE)
ROWS = [tuple(cell.replace("\\|", "|") for cell in row) for row in ROW.findall(PAGE)]
SHAPES = re.search(r"^```python file=shapes\.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The definitions on the page."""
    assert SHAPES is not None
    (tmp_path / "shapes.py").write_text(SHAPES[1], "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shapes", raising=False)
    return vars(importlib.import_module("shapes"))


def test_every_line_of_the_table_is_read() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]

    assert len(lines) == len(ROWS)


@pytest.mark.parametrize(("annotation", "expression", "stored"), ROWS)
async def test_value_is_stored_as_shown_and_arrives_as_its_type(
    shapes: dict[str, Any], annotation: str, expression: str, stored: str
) -> None:
    app = Holdfast("memory://")
    value = eval(expression, shapes)  # the page is ours
    received: list[object] = []

    async def take(given: object) -> object:
        received.append(given)
        return given

    take.__annotations__ = {"given": eval(annotation, shapes)}
    task = app.task("take", max_attempts=1)(take)

    async with app:
        job = await task.submit(given=value)
        await Worker(app).run(burst=True)
        (kept,) = await app.store.get([job.job_id])
        done = await app.get(job.job_id)

    assert kept is not None
    assert f'{{"given":{stored}}}' == kept.payload.decode()
    assert State.COMPLETED is done.state, done.failure
    assert [value] == received
    assert type(value) is type(received[0])
    assert (value if isinstance(value, bytes) else json.loads(stored)) == done.output


async def test_path_of_another_type_is_refused() -> None:
    app = Holdfast("memory://")

    @app.task("take", max_attempts=1)
    async def take(given: Path) -> None: ...

    async with app:
        with pytest.raises(ValidationError, match=r"Expected `str`, got `int` - at `\$.given`"):
            await app.submit("take", {"given": 7})
