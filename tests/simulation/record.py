"""What a simulation records: everything the checks and a reader of the trace need."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.model.job import Event
from holdfast.model.lifecycle import may_answer
from holdfast.model.times import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.model.job import Job
    from holdfast.store import Added, Change, Fence, Promoted, Swapped

ANSWERS = frozenset({Event.COMPLETE, Event.FAIL, Event.RETRY, Event.GIVE_BACK})
"""What only the holder of a lease may write."""

OUTCOMES = ANSWERS | {Event.EXHAUST, Event.CANCEL, Event.EXPIRE}
"""What a holder's outcome may result in."""


@dataclass
class Claimed:
    """One claim as the store granted it."""

    job: Job
    sender: str
    at: float


@dataclass
class Written:
    """One change that a process requested the store to write."""

    sender: str
    at: float
    change: Change
    answer: Swapped


@dataclass
class Execution:
    """One start of a handler."""

    process: str
    job_id: str
    version: int
    started: float
    effects: int = 0
    finished: float | None = None


@dataclass
class Record:
    """The record of one run."""

    time: Callable[[], float]
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    claims: list[Claimed] = field(default_factory=list)
    swaps: list[Written] = field(default_factory=list)
    renewals: list[tuple[float, Fence, datetime]] = field(default_factory=list)
    """(when it was granted, for whom, until)."""
    beats: list[tuple[float, Fence]] = field(default_factory=list)
    """(when it was sent, for whom)."""
    executions: list[Execution] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)
    """Job -> the client that received its acceptance."""
    cancels: list[tuple[float, str, str]] = field(default_factory=list)
    """(when it was answered, job, answer)."""
    deaths: dict[str, float] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    schedule_seen: datetime | None = None
    """From when on a schedule's instants count."""
    left_behind: set[tuple[str, str]] = field(default_factory=set)
    """(process, job) of handlers that did not stop."""

    # --- hearing -------------------------------------------------------------------------

    def note(self, who: str, text: str) -> None:
        """Add a line to the trace."""
        self.lines.append((self.time(), who, text))

    def happened(self, what: str, times: int = 1) -> None:
        """Count something that must happen now and then for a run to prove anything."""
        self.counts[what] += times

    def sent(self, process: str, verb: str, args: tuple[Any, ...]) -> None:
        """Record that a process sends a request."""
        if verb == "extend":
            fences: list[Fence] = args[0]
            self.beats += [(self.time(), fence) for fence in fences]

    def acted(
        self, process: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any
    ) -> None:
        """Record that the store acted on a request."""
        remember = getattr(self, f"_{verb}", None)
        if remember is not None:
            remember(process, args, answer)

    def _add(self, process: str, args: tuple[Any, ...], answers: list[Added]) -> None:
        for job, answer in zip(args[0], answers, strict=True):
            after = f" after {', '.join(job.depends_on)}" if job.depends_on else ""
            self.note(process, f"add {job.id} {job.payload.decode()}{after} -> {answer.status}")

    def _note(self, process: str, args: tuple[Any, ...], kept: list[bool]) -> None:
        for note, held in zip(args[0], kept, strict=True):
            self.note(process, f"note {note.fence.job_id} -> {'kept' if held else 'refused'}")
            if not held:
                self.happened("note refused")

    def _hold(self, process: str, args: tuple[Any, ...], held: bool) -> None:
        name, *_, data = args
        if name.startswith("cron:") and held and self.schedule_seen is None:
            self.schedule_seen = parse_timestamp(data.decode())

    def _promote(self, process: str, args: tuple[Any, ...], promoted: Promoted) -> None:
        if promoted.count:
            self.note(process, f"promote -> {promoted.count}")

    def _claim(self, process: str, args: tuple[Any, ...], jobs: list[Job]) -> None:
        for job in jobs:
            self.claims.append(Claimed(job, process, self.time()))
            self.note(
                process, f"claim -> {job.id} attempt {job.attempt} version {job.lease_version}"
            )

    def _extend(self, process: str, args: tuple[Any, ...], beats: list[Any]) -> None:
        for fence, beat in zip(args[0], beats, strict=True):
            if beat.held:
                self.renewals.append((self.time(), fence, beat.until))
            else:
                self.happened("beat refused")
            self.note(process, f"extend {fence.job_id} -> {'held' if beat.held else 'not held'}")

    def _swap(self, process: str, args: tuple[Any, ...], answers: list[Swapped]) -> None:
        for change, answer in zip(args[0], answers, strict=True):
            self.swaps.append(Written(process, self.time(), change, answer))
            edges = ", ".join(edge.event for edge in change.after.trail)
            verdict = "written" if answer.written else "refused"
            self.note(process, f"swap {change.before.id} {edges} -> {verdict}")
            if not answer.written:
                self.happened("swap refused")
                self._tell_refused(change, answer)

    def _tell_refused(self, change: Change, answer: Swapped) -> None:
        lease = change.before.lease
        if answer.job is not None and answer.job.revision == change.before.revision:
            self.happened("taking back refused after a renewal")
        if lease is None or not any(edge.event in ANSWERS for edge in change.after.trail):
            return
        if answer.job is None or answer.job.lease is None:
            self.happened("answer for a job that is gone")
        elif answer.job.lease.token != lease.token:
            self.happened("stale answer refused")
        elif may_answer(answer.job, lease.token):
            self.happened("late answer still welcome")
        else:
            self.happened("repeated answer")

    # --- telling -------------------------------------------------------------------------

    def text(self, labels: dict[str, str] | None = None) -> str:
        """The trace for people, with short names for jobs."""
        text = "\n".join(f"{at:10.3f}  {who:12} {what}" for at, who, what in self.lines)
        for job_id, label in (labels or {}).items():
            text = text.replace(job_id, label)
        return text

    def digest(self) -> str:
        """A fingerprint of everything that happened."""
        return hashlib.sha256(self.text().encode()).hexdigest()
