"""The search box: qualifiers such as ``state:failed type:email.* tag.tenant:acme after:1h``.

The text stays in the address, so that a link can be shared. Payloads are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import cast

import msgspec

from holdfast.dashboard.formats import parse_span
from holdfast.dashboard.states import STATES
from holdfast.model.job import Priority
from holdfast.operations.filters import JobFilter

_WORD = re.compile(r'([a-z_]+(?:\.[^\s:"]+)?):("[^"]*"|\S*)|(\S+)', re.IGNORECASE)
_WHOLE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", re.IGNORECASE)
_START_OF_ID = re.compile(r"(?=\D*\d)[0-9a-f]{8}(?:-[0-9a-f-]*)?", re.IGNORECASE | re.ASCII)
_NO_MATCH = "\N{NO-BREAK SPACE}nothing"

QUALIFIERS = {
    "state": "failed, dead-letter, running, ready, delayed, retrying, waiting, completed or"
    " cancelled",
    "type": "a job type, or a pattern such as email.*",
    "queue": "a queue, or a pattern",
    "tag": "tag.NAME:VALUE, such as tag.tenant:acme",
    "priority": "critical, high, normal, low, bulk",
    "id": "the id of a job, or how it begins",
    "code": "the code of a failure, such as SMTP_TIMEOUT or HTTP_*",
    "worker": "a worker, or web-* for those that begin so: jobs that run on it now; beside"
    " state:failed, jobs that it ran last",
    "correlation": "a correlation id",
    "group": "a failure group",
    "after": "submitted at or after: 1h, 2d, 2026-11-16 or a full time",
    "before": "submitted before: the same",
    "changed": "changed state at or after: the same",
}
"""What the box understands, and the values each takes."""

PATTERNS = ("type", "queue")
"""Qualifiers whose values may have * anywhere."""
AT_END = ("code", "worker", "id")
"""Qualifiers whose values may end with *."""
_PATTERN_FAULT = {
    True: "takes * only at its end",
    False: "takes no pattern; a * that is meant goes in quotes",
}

_STATES = {look.slug: name for name, look in STATES.items()} | {
    look.label.lower().replace(" ", "-"): name for name, look in STATES.items()
}


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search, as it was understood."""

    text: str
    filter: JobFilter
    job_id: str = ""
    faults: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Words without a qualifier."""

    def alternatives(self) -> tuple[str, ...]:
        """Return what else its one word can mean, as searches."""
        if len(self.words) != 1:
            return ()
        (word,) = self.words
        others = (f"code:{word.rstrip('*')}*", f"queue:*{word}*", f"worker:{word.rstrip('*')}*")
        return tuple(self.text.replace(word, other, 1) for other in others)

    @property
    def states(self) -> tuple[str, ...]:
        """The states that it asks for."""
        return tuple(str(state) for state in self.filter.get("states", ()))


class _Terms:
    """Collects the terms of a search."""

    def __init__(self, now: datetime, types: Iterable[str], queues: Iterable[str]) -> None:
        self._now = now
        self._known = {"types": list(types), "queues": list(queues)}
        self.filter: dict[str, object] = {}
        self.job_id = ""
        self.faults: list[str] = []
        self.words: list[str] = []

    def add(self, name: str, given: str) -> None:
        value = given.strip('"')
        name = name if name.startswith("tag.") else name.lower()
        if name not in PATTERNS and "*" in _before_end(name, value) and given == value:
            self.faults.append(f"{name}: {_PATTERN_FAULT[name in AT_END]}, got {value!r}")
        elif name.startswith("tag."):
            tags = cast("dict[str, str]", self.filter.setdefault("tags", {}))
            tags[name[4:]] = value
        else:
            self._add_other(name, value)

    def _add_other(self, name: str, value: str) -> None:
        method = getattr(self, f"_add_{name}", None)
        if name not in QUALIFIERS or method is None:
            known = ", ".join(QUALIFIERS)
            self.faults.append(f"{name}: is not a qualifier; known are {known}")
        elif not value:
            self.faults.append(f"{name}: needs a value: {QUALIFIERS[name]}")
        else:
            method(value)

    def word(self, word: str) -> None:
        """A word without a qualifier is a job's id or its beginning if it can be, else a type."""
        if _WHOLE_ID.fullmatch(word) or _START_OF_ID.fullmatch(word):
            self._add_id(word)
        elif word.startswith("-"):
            self.faults.append(f"{word}: a search cannot leave jobs out, only narrow them down")
        else:
            self.words.append(word)
            self._add_type(word if "*" in word else f"*{word}*")

    def _add_state(self, value: str) -> None:
        states = cast("list[str]", self.filter.setdefault("states", []))
        for one in value.lower().replace("_", "-").split(","):
            if one in _STATES:
                states.append(_STATES[one])
            else:
                self.faults.append(f"state: does not take {one!r}; it takes {QUALIFIERS['state']}")

    def _add_type(self, value: str) -> None:
        self._add_names("types", value)

    def _add_queue(self, value: str) -> None:
        self._add_names("queues", value)

    def _add_names(self, field: str, value: str) -> None:
        found = cast("list[str]", self.filter.setdefault(field, []))
        for one in value.split(","):
            trailing = field == "types" and one.endswith("*") and one.count("*") == 1
            if trailing or ("*" not in one and "?" not in one):
                found.append(one)
            else:
                known = [name for name in self._known[field] if fnmatchcase(name, one)]
                found.extend(known or [_NO_MATCH])

    def _add_priority(self, value: str) -> None:
        levels = cast("list[str]", self.filter.setdefault("priorities", []))
        for one in value.upper().split(","):
            if one in Priority.__members__:
                levels.append(one)
            else:
                self.faults.append(f"priority: takes {QUALIFIERS['priority']}, got {one!r}")

    def _add_id(self, value: str) -> None:
        if _WHOLE_ID.fullmatch(value):
            self.job_id = value
        else:
            value = value.removesuffix("*")
            is_uuid = _START_OF_ID.fullmatch(value)
            self.filter["id_prefix"] = value.lower() if is_uuid else value

    def _add_code(self, value: str) -> None:
        self.filter["code"] = value

    def _add_worker(self, value: str) -> None:
        self.filter["worker"] = value

    def _add_correlation(self, value: str) -> None:
        self.filter["correlation_id"] = value

    def _add_group(self, value: str) -> None:
        self.filter["group"] = value

    def _add_after(self, value: str) -> None:
        self._moment("created_after", "after", value)

    def _add_before(self, value: str) -> None:
        self._moment("created_before", "before", value)

    def _add_changed(self, value: str) -> None:
        self._moment("updated_after", "changed", value)

    def _moment(self, field: str, name: str, value: str) -> None:
        span = parse_span(value) if not re.match(r"\d{4}-", value) else None
        if span is not None:
            self.filter[field] = self._now - span
            return
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            self.faults.append(f"{name}: takes {QUALIFIERS['after']}, got {value!r}")
            return
        self.filter[field] = at if at.tzinfo else at.replace(tzinfo=UTC)


def parse(
    text: str, *, now: datetime, types: Iterable[str] = (), queues: Iterable[str] = ()
) -> SearchQuery:
    """Read a search; ``types`` and ``queues`` are the names that patterns can match."""
    terms = _Terms(now, types, queues)
    for name, value, word in _WORD.findall(text.replace("\x00", "")[:2000]):
        if name:
            terms.add(name, value)
        else:
            terms.word(word)
    return SearchQuery(
        text=text.strip(),
        filter=cast("JobFilter", terms.filter),
        job_id=terms.job_id,
        faults=tuple(terms.faults),
        words=tuple(terms.words),
    )


def _before_end(name: str, value: str) -> str:
    """Return the part of a value that may have no pattern."""
    return value[:-1] if name in AT_END else value


def with_state(text: str, state: str) -> str:
    """Return a search for another state, or with an empty one for all."""
    kept = [match[0] for match in _WORD.finditer(text) if not match[0].lower().startswith("state:")]
    return " ".join(([f"state:{state}"] if state else []) + kept)


def completed_name(text: str) -> str:
    """Return the qualifier whose value is completed: the last one, if its value has begun."""
    name, colon, _ = text.rpartition(" ")[2].partition(":")
    return name if colon or name.startswith("tag.") else ""


def completions(text: str, known: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the texts that a search can become with its last word completed.

    ``known`` has the values that the store knows, by qualifier.
    """
    before, _, word = text.rpartition(" ")
    start = f"{before} " if before else ""
    name, colon, value = word.partition(":")
    if not colon:
        words = [f"{each}." if each == "tag" else f"{each}:" for each in QUALIFIERS]
        found = [each for each in words if each.startswith(word.lower())]
        found += [f"{each}:" for each in known if each.startswith("tag.") and word in each]
        found += [f"type:{each}" for each in known.get("type", ()) if word in each]
        return [start + each for each in found]
    name = name if name in known else name.lower()
    choices = _FIXED.get(name) or known.get(name, ())
    return [f"{start}{name}:{_quoted(each)}" for each in choices if value.lower() in each.lower()]


_SPANS = ("15m", "1h", "24h", "7d")
_FIXED: dict[str, tuple[str, ...]] = {
    "state": tuple(look.slug for look in STATES.values()),
    "priority": tuple(level.lower() for level in Priority.__members__),
    **dict.fromkeys(("after", "before", "changed"), _SPANS),
}


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value or "*" in value else value
