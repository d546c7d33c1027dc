"""Why a job is where it is: one sentence, with links to jobs and instants as people say them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from holdfast.dashboard.formats import instant, passed, plural, short_id
from holdfast.dashboard.states import STATES
from holdfast.model.job import TERMINAL, State
from holdfast.model.status import JobStatus
from holdfast.model.times import parse_timestamp
from holdfast.operations.explain import Cause, Explanation

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)", re.ASCII)

_COUNTED = re.compile(r"\b(\d{1,12}) (worker|slot|job)\(s\)", re.ASCII)
"""How explain counts, on the command line as well."""


FOLLOWED = "DEPENDENCY_ENDED"
"""The code of a job that ended because one that it depends on did."""
_ENDED = re.compile(r"dependency (\S+) ended ([A-Z_]+)")
_ENDS = {"FAILED": "failed for good", "DEAD_LETTER": "gave up", "CANCELLED": "was cancelled"}
_IS_IN = re.compile(rf"\bwhich is ({'|'.join(STATES)})\b(?: and (\d{{1,9}}) more)?", re.ASCII)


class SentencePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a sentence: a text, with the job that it leads to or the exact words."""

    text: str
    job_id: str = ""
    title: str = ""
    since: datetime | None = None
    """The text is the time since then, which goes on."""


def sentence_parts(
    job: JobStatus,
    explanation: Explanation,
    *,
    now: datetime,
    types: Mapping[str, str] | None = None,
) -> tuple[SentencePart, ...]:
    """Return why a job is where it is; ``types`` are those of the jobs around it, by id."""
    if is_followed(job) and job.failure and (ended := _ENDED.fullmatch(job.failure.message)):
        what = "go on" if job.attempt else "run"
        return _followed(what, ended[1], ended[2], types or {})
    if explanation.cause is Cause.RUNNING and job.started_at is not None:
        return _running(job, explanation, now)
    sentence = _sentence(job, explanation.message)
    awaited = explanation.details.get("waiting_for")
    named = next(iter(awaited), "") if isinstance(awaited, dict) else ""
    return tuple(_parts(sentence, named, now))


def is_followed(job: JobStatus) -> bool:
    """Whether a job ended because one that it depends on did."""
    return job.failure is not None and job.failure.code == FOLLOWED


def _followed(
    what: str, parent: str, state: str, types: Mapping[str, str]
) -> tuple[SentencePart, ...]:
    name = f"{types.get(parent, 'job')} {short_id(parent)}"
    return (
        SentencePart(text=f"It did not {what}: it depends on "),
        SentencePart(text=name, job_id=parent, title=parent),
        SentencePart(text=f", which {_ENDS.get(state, 'ended')}."),
    )


def _running(job: JobStatus, explanation: Explanation, now: datetime) -> tuple[SentencePart, ...]:
    """Return how long a job runs and where; when its lease ends is on hover."""
    assert job.started_at is not None
    lease = f"holds the lease until {_said(str(explanation.details['lease_until']), now)}"
    return (
        SentencePart(text="Running for "),
        SentencePart(text=passed(job.started_at, now), since=job.started_at),
        SentencePart(text=" on "),
        SentencePart(text=str(explanation.details["worker"]), title=lease),
        *_with_instants(_stopping(explanation.message), now),
    )


def _stopping(message: str) -> str:
    """Return what a running job was asked, from the message of explain; else the full stop."""
    _, _, asked = message.partition("it is running, and ")
    asked = asked.rpartition(": worker ")[0]
    if not asked:
        return "."
    asked = f"it {asked}" if asked.startswith("was ") else asked
    return f". {asked[:1].upper()}{asked[1:]}."


def _parts(sentence: str, named: str, now: datetime) -> Iterator[SentencePart]:
    before, found, after = sentence.partition(named) if named else (sentence, "", "")
    yield from _with_instants(before, now)
    if found:
        yield SentencePart(text=found, job_id=found)
        yield from _with_instants(after, now)


def _with_instants(text: str, now: datetime) -> Iterator[SentencePart]:
    for place, piece in enumerate(_INSTANT.split(text)):
        if place % 2:
            yield SentencePart(text=_said(piece, now), title=piece)
        elif piece:
            yield SentencePart(text=piece)


def spoken(text: str, now: datetime) -> str:
    """Return a text with its instants as people say them."""
    return "".join(part.text for part in _with_instants(text, now))


def _said(written: str, now: datetime) -> str:
    """Return an instant to the second, and without its day when that is today."""
    try:
        at = parse_timestamp(written)
    except ValueError:
        return written
    words = instant(at)
    return words.partition(" ")[2] if at.date() == now.date() else words


def _sentence(job: JobStatus, message: str) -> str:
    """Return why the job is where it is, in one sentence."""
    if job.state not in TERMINAL:
        message = _COUNTED.sub(lambda found: plural(int(found[1]), found[2]), message)
        message = _IS_IN.sub(_in_words, message)
        return f"{message[:1].upper()}{message[1:]}" + ("" if message.endswith(".") else ".")
    tries = f"after {plural(job.attempt, 'attempt')}" if job.attempt else "before it ran"
    why = f": {str(job.failure)[:400]}" if job.failure else "."
    match job.state:
        case State.COMPLETED:
            return f"Completed {tries}."
        case State.CANCELLED:
            reason = job.history[-1].reason if job.history else ""
            return f"Cancelled {tries}" + (f": {reason[:300]}" if reason else ".")
        case State.DEAD_LETTER:
            return f"Gave up {tries}{why}"
        case _:
            return f"Failed for good {tries}{why}"


def _in_words(found: re.Match[str]) -> str:
    """Return the state of the job that is waited for, as the rest of the page names it."""
    more = f", and for {found[2]} more" if found[2] else ""
    return f"which is {STATES[found[1]].label.lower()}{more}"
