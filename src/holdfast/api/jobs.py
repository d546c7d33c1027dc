"""Jobs, events and failures as one caller may see them.

The values of ``model.status`` and ``model.results`` are sent as they are: their fields are those
of the API. A caller without the right to see traces gets them without details of the handler.
"""

from __future__ import annotations

from urllib.parse import quote

from msgspec.structs import replace

from holdfast.model.results import FailureDetails, JobSearchResult
from holdfast.model.status import EventInfo, FailureInfo, JobResult, JobStatus, StateTransition


def visible_job(job: JobStatus, *, traces: bool) -> JobStatus:
    """Return a job; without ``traces``, without details of its handler."""
    if traces:
        return job
    history = job.history
    return replace(
        job,
        failure=_bare(job.failure),
        result=_bare_result(job.result),
        history=None if history is None else tuple(_bare_edge(edge) for edge in history),
    )


def visible_page(page: JobSearchResult, *, traces: bool) -> JobSearchResult:
    """Return a page of jobs; without ``traces``, without details of their handlers."""
    return replace(page, jobs=tuple(_listed(job, traces=traces) for job in page.jobs))


def _listed(job: JobStatus, *, traces: bool) -> JobStatus:
    """Return a job of a list, with the address of an output that the list leaves out."""
    shown = visible_job(job, traces=traces)
    if shown.result is None or not shown.result.output_omitted:
        return shown
    url = f"/api/v1/jobs/{quote(job.job_id, safe='')}/result"
    return replace(shown, result=replace(shown.result, output_url=url))


def visible_event(event: EventInfo, *, traces: bool) -> EventInfo:
    """Return an event; without ``traces``, without details of the handler."""
    if traces or event.transition is None:
        return event
    return replace(event, transition=_bare_edge(event.transition))


def visible_failure(details: FailureDetails, *, traces: bool) -> FailureDetails:
    """Return how a job failed; without ``traces``, without details of its handler."""
    if traces:
        return details
    attempts = tuple(replace(one, failure=_bare(one.failure)) for one in details.attempts)
    return replace(details, failure=_bare(details.failure), attempts=attempts)


def _bare(failure: FailureInfo | None) -> FailureInfo | None:
    return failure and replace(failure, stack_trace="", context={}, host="")


def _bare_result(result: JobResult | None) -> JobResult | None:
    return result and replace(result, error=_bare(result.error))


def _bare_edge(edge: StateTransition) -> StateTransition:
    return replace(edge, failure=_bare(edge.failure))
