"""The text of a handler's stack trace. A frame that raises again and again is formatted once.

Formatting reads the source and, for the marks under a line, parses it: half of the time that a
failed attempt took.
"""

from __future__ import annotations

import traceback
from types import CodeType, TracebackType

LEADING = (
    "holdfast.worker.executor",
    "holdfast.worker.around",
    "holdfast.tasks.injecting",
    "holdfast.tasks.scope",
)
"""Modules whose frames lead to the handler."""

MOST_FRAMES = 64
"""Longer traces may be recursions, which the standard library shortens."""
MOST_KNOWN = 1024
MAX_TRACE = 16_384

_SPECIAL = (AttributeError, BaseExceptionGroup, ImportError, NameError, SyntaxError)
"""Errors that the standard library adds something to: a suggestion, a place, further errors."""
_UNNAMED = ("__main__", "builtins")

_known: dict[tuple[CodeType, str, int], str] = {}
"""Texts of frames, by code and instruction."""


def trace_of(error: BaseException) -> str:
    """Return the trace of the handler's own frames, without those that lead to it."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_globals.get("__name__") in LEADING:
        first = first.tb_next
    frames = _frames(first)
    if not frames or not _is_simple(error):
        return "".join(traceback.format_exception(type(error), error, first))[-MAX_TRACE:]
    lines = map(_text, frames)
    return f"Traceback (most recent call last):\n{''.join(lines)}{_summary(error)}"[-MAX_TRACE:]


def _frames(first: TracebackType | None) -> list[TracebackType]:
    """Return the frames of a trace; none when there are many."""
    found: list[TracebackType] = []
    while first is not None and len(found) <= MOST_FRAMES:
        found.append(first)
        first = first.tb_next
    return found if len(found) <= MOST_FRAMES else []


def _is_simple(error: BaseException) -> bool:
    context = None if error.__suppress_context__ else error.__context__
    return not (
        isinstance(error, _SPECIAL)
        or error.__cause__ is not None
        or context is not None
        or getattr(error, "__notes__", None)
    )


def _text(frame: TracebackType) -> str:
    code = frame.tb_frame.f_code
    key = (code, code.co_filename, frame.tb_lasti)  # equal code may be in two files
    text = _known.get(key)
    if text is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        text = _known[key] = "".join(traceback.format_list(traceback.extract_tb(frame, limit=1)))
    return text


def _summary(error: BaseException) -> str:
    kind, text = type(error), str(error)
    name = kind.__qualname__
    if kind.__module__ not in _UNNAMED:
        name = f"{kind.__module__}.{name}"
    return f"{name}: {text}\n" if text else f"{name}\n"
