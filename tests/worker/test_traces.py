"""The stack trace of a failed attempt reads as the standard library writes it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest

from holdfast.observe.redaction import Redaction
from holdfast.worker import traces
from tests.conformance.hand import failure

if TYPE_CHECKING:
    from collections.abc import Callable


class OrderError(Exception):
    """Named with its module."""


def plain() -> None:
    raise OrderError("order 7 has no customer")


def silent() -> None:
    raise ValueError


def noted() -> None:
    error = ValueError("no")
    error.add_note("but")
    raise error


def chained() -> None:
    try:
        silent()
    except ValueError as error:
        raise KeyError("x") from error


def in_context() -> None:
    try:
        silent()
    except ValueError:
        {}["x"]


def suppressed() -> None:
    try:
        silent()
    except ValueError:
        raise KeyError("x") from None


def grouped() -> None:
    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])


def misspelled() -> None:
    "".uper()  # type: ignore[attr-defined]  # gets a suggestion


def recursive(depth: int = 100) -> None:
    if depth:
        recursive(depth - 1)
    plain()


def without_source() -> None:
    exec(compile("def f():\n    raise ValueError('made')\nf()", "<made>", "exec"), {})


ERRORS = [
    *(plain, silent, noted, chained, in_context, suppressed, grouped),
    *(misspelled, recursive, without_source),
]


def raised(by: Callable[[], None]) -> Exception:
    try:
        by()
    except Exception as error:  # noqa: BLE001  # what is tested
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("by", ERRORS)
def test_trace_is_that_of_the_standard_library_the_first_and_the_second_time(
    by: Callable[[], None],
) -> None:
    for _ in range(2):
        error = raised(by)

        assert "".join(traceback.format_exception(error)) == traces.trace_of(error)


def test_equal_code_in_two_files_keeps_its_file() -> None:
    texts = []
    for file in ("one.py", "two.py"):
        code = compile("raise ValueError('same')", file, "exec")
        texts.append(traces.trace_of(raised(lambda code=code: exec(code, {}))))  # type: ignore[misc]

    assert "one.py" in texts[0]
    assert "two.py" in texts[1]


def test_memory_for_frames_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_KNOWN", 2)
    for number in range(5):
        source = f"raise ValueError({number})"
        error = raised(lambda source=source: exec(source, {}))  # type: ignore[misc]
        assert f"ValueError: {number}\n" in traces.trace_of(error)

    assert len(traces._known) <= 2  # nothing public shows how many are kept


@pytest.mark.parametrize(
    "message",
    ["password=hunter22 is wrong", "two\nlines with password=hunter22", "", "plain"],
)
def test_secrets_in_frames_and_messages_are_masked_each_time(message: str) -> None:
    redaction = Redaction("pin", hook=lambda text: text.replace("4711", "####"))
    trace = (
        f'Traceback (most recent call last):\n  File "a.py", line 4711, in f\n'
        f'    login("anna", password="hunter22")\nTokenError: {message}\n'
    )
    given = failure(message=message, code="pin: 1234", stack_trace=trace)

    for _ in range(2):
        masked = redaction.failure(given)

        texts = masked.message + masked.code + masked.stack_trace
        assert not {word for word in ("hunter22", "4711", "1234") if word in texts}
        assert masked.stack_trace.startswith("Traceback")
