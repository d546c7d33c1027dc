"""Payloads and results as people read them: collapsible JSON, bounded, with secrets masked.

Numbers stay the text they are stored as: a browser or a float would round large ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from holdfast.dashboard.masking import NumberText, masked, read_json, written
from holdfast.model.status import JobStatus
from holdfast.observe.redaction import LONGEST_SECRET, Redaction
from holdfast.observe.secrets import MASK
from holdfast.runtime.off_loop import off_loop

MOST_BYTES = 262_144
"""A larger value is shown as the beginning of its text."""
MOST_TEXT = 20_000
"""Characters of one text."""
MOST_NODES = 2000
"""Values of one tree; no others are masked."""
DEEPEST = 30
EXPENSE = 32
"""Masking a byte and making nodes of it takes as long as reading so many bytes."""


class ShownJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its payload, for ``format_payload``."""

    job_id: str
    type: str
    queue: str
    tags: Mapping[str, str]
    payload: object


class JsonNode(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a tree: an object, an array, or a scalar as text."""

    kind: str
    """object, array, text, number, word or more."""
    name: str = ""
    text: str = ""
    children: tuple[JsonNode, ...] = ()
    size: int = 0


class ShownValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of a value."""

    tree: JsonNode | None = None
    text: str = ""
    note: str = ""
    bytes: int = 0


async def shown_beside(value: object, redaction: Redaction) -> ShownValue:
    """Return a value for a page; a large one is masked beside the event loop."""
    size = len(bytes(value)) if isinstance(value, msgspec.Raw | bytes) else MOST_BYTES
    return await off_loop(EXPENSE * size, partial(shown_value, value, redaction))


def shown_value(value: object, redaction: Redaction) -> ShownValue:
    """Return a value for a page; ``value`` is undecoded JSON, bytes, or nothing."""
    if isinstance(value, bytes):
        return ShownValue(
            text=value[:200].hex(" "), bytes=len(value), note="bytes, not JSON: the first 200"
        )
    try:
        data = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    except RecursionError:
        return ShownValue(note="nested too deeply to be shown")
    if len(data) > MOST_BYTES:
        note = f"the first {MOST_TEXT:,} characters"
        return ShownValue(text=_beginning(data, redaction), bytes=len(data), note=note)
    try:
        decoded = read_json(data)
    except (ValueError, RecursionError):
        text = _beginning(data, redaction)
        return ShownValue(text=text, bytes=len(data), note="not readable as JSON")
    return ShownValue(tree=_Tree(redaction).node("", decoded, 0), bytes=len(data))


def _beginning(data: bytes, redaction: Redaction) -> str:
    text = data[: 4 * (MOST_TEXT + LONGEST_SECRET)].decode("utf-8", "replace")
    return redaction.beginning(text, MOST_TEXT)


def whole_text(value: object, redaction: Redaction) -> str:
    """Return all of a value as text, masked as on a page; RecursionError when it is too deep."""
    if isinstance(value, bytes):
        return value.hex(" ")
    data = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    try:
        decoded = read_json(data)
    except ValueError:
        return redaction.text(data.decode("utf-8", "replace"))
    return written(masked(decoded, redaction))


def formatted(job: JobStatus, payload: object, hook: Callable[[ShownJob], str]) -> ShownValue:
    """Return what a hook makes of a payload."""
    try:
        return ShownValue(text=formatted_text(job, payload, hook)[:MOST_TEXT])
    except RecursionError:
        return ShownValue(note="nested too deeply to be shown")


def formatted_text(job: JobStatus, payload: object, hook: Callable[[ShownJob], str]) -> str:
    """Return all that a hook makes of a payload; RecursionError when it is too deep."""
    decoded = msgspec.json.decode(payload) if isinstance(payload, msgspec.Raw) else payload
    job_id, type_, queue = job.job_id, job.type, job.queue
    given = ShownJob(job_id=job_id, type=type_, queue=queue, tags=job.tags, payload=decoded)
    return str(hook(given))


class _Tree:
    """Builds a tree of at most ``MOST_NODES`` values."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._left = MOST_NODES

    def node(self, name: str, value: Any, depth: int) -> JsonNode:
        self._left -= 1
        if isinstance(value, dict | list) and value and depth >= DEEPEST:
            return JsonNode(kind="more", name=name, text="deeper values are not shown")
        if isinstance(value, dict):
            return self._many("object", name, list(value.items()), depth)
        if isinstance(value, list):
            items = [(str(at), each) for at, each in enumerate(value)]
            return self._many("array", name, items, depth)
        return self._scalar(name, value)

    def _many(self, kind: str, name: str, items: list[tuple[str, Any]], depth: int) -> JsonNode:
        children: list[JsonNode] = []
        for key, value in items:
            if self._left <= 0:
                text = f"{len(items) - len(children):,} more"
                children.append(JsonNode(kind="more", text=text))
                break
            children.append(self.node(key, value, depth + 1))
        return JsonNode(kind=kind, name=name, children=tuple(children), size=len(items))

    def _scalar(self, name: str, value: Any) -> JsonNode:
        if isinstance(value, NumberText) and len(value) <= MOST_TEXT:
            text = masked(value, self._redaction, name)
            if isinstance(text, NumberText):
                return JsonNode(kind="number", name=name, text=text)
        if isinstance(value, str):
            cut = self._redaction.beginning(value, MOST_TEXT, name)
            left = len(value) - MOST_TEXT
            more = f" … {left:,} more characters" if left > 0 and cut != MASK else ""
            quoted = json.dumps(cut, ensure_ascii=False) + more
            return JsonNode(kind="text", name=name, text=quoted)
        return JsonNode(kind="word", name=name, text=json.dumps(value))
