"""One job: why it is where it is, what happened to it, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.api.jobs import visible_failure, visible_job
from holdfast.api.responses import AuditEntry
from holdfast.dashboard.formats import duration
from holdfast.dashboard.graphs import GraphLayout, layout, nearby
from holdfast.dashboard.payloads import ShownValue, formatted, shown_beside
from holdfast.dashboard.screens.copies import may_copy
from holdfast.dashboard.screens.job_actions import ACTIONS
from holdfast.dashboard.sentences import SentencePart, is_followed, sentence_parts
from holdfast.dashboard.states import STATES
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.errors import StoreError
from holdfast.http.audit import Audit
from holdfast.model.amendment import POSTPONABLE
from holdfast.model.job import TERMINAL, Job, State, Transition, attempts
from holdfast.model.results import AttemptInfo, FailureDetails, attempt_info
from holdfast.model.status import JobStatus, LogEntry, StateTransition, job_payload, job_status
from holdfast.operations.explain import explain
from holdfast.operations.graph import JobGraph

MOST_LINES = 1000
MOST_EDGES = 200
MOST_STEPS = 12
"""Steps of the small drawing; of a larger workflow it shows the neighbours of the job."""
CLAMPED = 200
"""Characters of a sentence that fit into three lines."""
SHORTEST = timedelta(milliseconds=1)
"""A state that lasted less has no entry in the legend."""
AUDITED = 300
"""Entries of the audit log that are searched for those of the job."""


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a job's life, and how long it lasted."""

    edge: StateTransition
    lasted: timedelta | None
    """None: it lasts still, or is the end."""

    @property
    def worker(self) -> str:
        """The worker of the attempt that began."""
        return self.edge.worker_id

    @property
    def words(self) -> str:
        """Why the state changed, without the failure's message: the attempt shows it."""
        reason, failure = self.edge.reason, self.edge.failure
        if failure is None or not failure.message or failure.message not in reason:
            return reason
        return reason.partition(failure.message)[0].rstrip(": ")


class JobActions(msgspec.Struct, frozen=True, kw_only=True):
    """What this caller can do with the job in its present state."""

    retry: bool
    cancel: bool
    force: bool
    release: bool
    delete: bool
    change: bool
    run_now: bool
    postpone: bool
    copy: bool

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return any(getattr(self, name) for name in self.__struct_fields__)


class JobPageView(msgspec.Struct, frozen=True, kw_only=True):
    """All about one job."""

    job: JobStatus
    sentence: tuple[SentencePart, ...]
    """Why the job is where it is."""
    whole: str
    """The same in one text, when it is too long for three lines."""
    has_ended: bool
    is_followed: bool
    """Whether it ended because one that it depends on did."""
    is_stopping: bool
    """Whether it runs and was asked to stop."""
    steps: tuple[TimelineStep, ...]
    course: tuple[tuple[str, float, str], ...]
    spent: tuple[tuple[str, str, timedelta], ...]
    """How long it was in each state: the state's slug, its word and the time."""
    repeated: frozenset[int]
    """Attempts whose message stands elsewhere on the page."""
    attempts: tuple[AttemptInfo, ...]
    payload: ShownValue | None
    payload_hidden: str
    result: ShownValue | None
    logs: tuple[LogEntry, ...]
    logs_left_out: int
    graph: JobGraph | None
    drawing: GraphLayout | None
    audit: tuple[AuditEntry, ...]
    actions: JobActions
    total: timedelta


async def job(visit: Visit) -> JobPageView:
    """Return all about one job."""
    job_id = visit.path["job_id"]
    stored = await visit.operations.job(job_id)
    store, traces, now = visit.operations.store, visit.caller.traces, visit.now
    (edges,), (lines,) = await store.history([job_id]), await store.logs([job_id])
    found = visible_job(job_status(stored, history=edges, as_text=True), traces=traces)
    steps = _steps((found.history or ())[-MOST_EDGES:], now, ended=found.state in TERMINAL)
    payload, hidden = await _payload(visit, stored, found)
    graph = await _graph(visit, found)
    types = {id_: node.type for node in graph.nodes for id_ in node.job_ids} if graph else {}
    sentence = sentence_parts(found, await explain(store, stored), now=now, types=types)
    whole = "".join(part.text for part in sentence)
    made = _attempts(stored, edges, traces=traces)
    return JobPageView(
        job=found,
        sentence=sentence,
        whole=whole if len(whole) > CLAMPED else "",
        has_ended=found.state in TERMINAL,
        is_followed=is_followed(found),
        is_stopping=found.state is State.RUNNING and stored.cancel is not None,
        steps=steps,
        course=_course(steps, now),
        spent=_spent(steps),
        repeated=_repeated(made, found, whole),
        attempts=made,
        payload=payload,
        payload_hidden=hidden,
        result=await _result(visit, found),
        logs=tuple(LogEntry.of(line) for line in lines[-MOST_LINES:]),
        logs_left_out=max(0, len(lines) - MOST_LINES),
        graph=graph,
        drawing=layout(nearby(graph, MOST_STEPS)) if graph else None,
        audit=await _audit(visit, job_id),
        actions=_actions(visit, found),
        total=(found.completed_at or now) - found.created_at,
    )


def _steps(
    history: Sequence[StateTransition], now: datetime, *, ended: bool
) -> tuple[TimelineStep, ...]:
    steps = []
    for at, edge in enumerate(history):
        last = at + 1 == len(history)
        until = None if last and ended else now if last else history[at + 1].timestamp
        lasted = max(timedelta(0), until - edge.timestamp) if until else None
        steps.append(TimelineStep(edge=edge, lasted=lasted))
    return tuple(steps)


def _course(steps: Sequence[TimelineStep], now: datetime) -> tuple[tuple[str, float, str], ...]:
    """Return the parts of the bar over a job's life: tone, seconds and words."""
    found = []
    for step in steps:
        if step.lasted is None:
            continue
        look = STATES[step.edge.to_state.value]
        words = f"{look.label} {duration(step.lasted)}"
        found.append((look.slug, step.lasted.total_seconds() + 1e-6, words))
    return tuple(found)


def _spent(steps: Sequence[TimelineStep]) -> tuple[tuple[str, str, timedelta], ...]:
    """Return how long the job was in each state, in the order in which it reached them."""
    spans: dict[State, timedelta] = {}
    for step in steps:
        if step.lasted is not None:
            state = step.edge.to_state
            spans[state] = spans.get(state, timedelta(0)) + step.lasted
    looks = [(STATES[state.value], span) for state, span in spans.items()]
    return tuple((look.slug, look.label, span) for look, span in looks if span >= SHORTEST)


def _repeated(made: Sequence[AttemptInfo], found: JobStatus, sentence: str) -> frozenset[int]:
    """Return the attempts whose message the sentence above says in full, or a newer attempt."""
    says = found.state in TERMINAL and len(sentence) <= CLAMPED
    said = {found.failure.message} if found.failure and says else set[str]()
    repeated = set()
    for attempt in made:
        if attempt.failure is None:
            continue
        if attempt.failure.message in said:
            repeated.add(attempt.attempt)
        said.add(attempt.failure.message)
    return frozenset(repeated)


def _attempts(job: Job, edges: Sequence[Transition], *, traces: bool) -> tuple[AttemptInfo, ...]:
    """Return the attempts, the newest first."""
    made = tuple(attempt_info(each) for each in attempts(job.id, list(edges)))
    details = FailureDetails(
        job_id=job.id,
        type=job.type,
        queue=job.queue,
        final_state=job.state,
        total_attempts=job.attempt,
        failure=None,
        attempts=made,
    )
    return tuple(reversed(visible_failure(details, traces=traces).attempts))


async def _payload(visit: Visit, stored: Job, found: JobStatus) -> tuple[ShownValue | None, str]:
    """Return the payload, or why it is not shown."""
    settings = visit.settings
    if not settings.show_payloads:
        return None, "This dashboard does not show payloads."
    if not visit.may("getPayload"):
        return None, f"A key of role {visit.caller.role} may not read payloads."
    payload = job_payload(stored, as_text=True).payload
    if settings.format_payload is not None:
        return formatted(found, payload, settings.format_payload), ""
    return await shown_beside(payload, visit.service.app.redaction), ""


async def _result(visit: Visit, found: JobStatus) -> ShownValue | None:
    result = found.result
    if result is None or found.state is not State.COMPLETED or not visit.settings.show_payloads:
        return None
    return await shown_beside(result.output, visit.service.app.redaction)


async def _graph(visit: Visit, found: JobStatus) -> JobGraph | None:
    """Return the jobs around this one, if there are any."""
    made = await visit.operations.graph(found.job_id)
    return made if made.jobs > 1 else None


async def _audit(visit: Visit, job_id: str) -> tuple[AuditEntry, ...]:
    """Return who changed this job lately; for administrators, as in the API."""
    if not visit.may("listAudit"):
        return ()
    try:
        entries, _ = await Audit(visit.operations.store).page("", AUDITED)
    except StoreError:
        return ()
    return tuple(each for each in entries if f"/{job_id}" in each.target)


def _actions(visit: Visit, found: JobStatus) -> JobActions:
    live = found.state not in TERMINAL
    waits = live and found.state is not State.RUNNING
    return JobActions(
        retry=visit.may("retryJob") and found.state in (State.FAILED, State.DEAD_LETTER),
        cancel=visit.may("cancelJob") and live,
        force=visit.may("cancelJob") and found.state is State.RUNNING,
        release=visit.may("releaseJob") and found.held and found.state is State.PENDING,
        delete=visit.may("deleteJob") and not live,
        change=visit.may("updateJob") and waits,
        run_now=visit.may("updateJob") and found.state in (State.DELAYED, State.RETRYING),
        postpone=visit.may("updateJob") and found.state in POSTPONABLE,
        copy=may_copy(visit),
    )


SCREENS = (
    ScreenRoute(
        path="/jobs/{job_id}",
        title="Job",
        template="job.html",
        call="getJob",
        view=job,
        section="jobs",
        reads=18,
        one_job=True,
    ),
)

__all__ = ["ACTIONS", "SCREENS"]
