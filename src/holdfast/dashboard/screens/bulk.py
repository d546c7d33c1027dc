"""Actions on many jobs: a preview that binds the instant, then the action on exactly those.

Jobs that begin to match after the preview are not touched: nobody has seen them.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, cast

import msgspec

from holdfast.api.errors import RequestError
from holdfast.dashboard.formats import iso, plural
from holdfast.dashboard.screens.job_actions import delay_of
from holdfast.dashboard.screens.jobs import read_search
from holdfast.dashboard.search import SearchQuery
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.model.job import State
from holdfast.model.status import JobStatus
from holdfast.operations.filters import JobFilter

SAMPLE = 10
MOST_IDS = 1000


class BulkKind(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done with many jobs."""

    name: str
    verb: str
    done: str
    explanation: str
    call: str
    tone: str = ""


KINDS = {
    kind.name: kind
    for kind in (
        BulkKind(
            name="retry",
            verb="Retry",
            done="retried",
            call="retryJobs",
            explanation="Failed and dead-letter jobs among them run again; others are skipped.",
        ),
        BulkKind(
            name="cancel",
            verb="Cancel",
            done="cancelled",
            call="cancelJobs",
            tone="bad",
            explanation="Waiting jobs end at once. Running ones are asked to stop.",
        ),
        BulkKind(
            name="delete",
            verb="Delete",
            done="deleted",
            call="deleteJobs",
            tone="bad",
            explanation="Ended jobs are removed with their history. This cannot be undone.",
        ),
    )
}


class BulkView(msgspec.Struct, frozen=True, kw_only=True):
    """What an action would change."""

    kind: BulkKind
    search: SearchQuery | None
    ids: tuple[str, ...]
    total: int
    exact: bool
    sample: tuple[JobStatus, ...]
    as_of: datetime


def _kind(name: str) -> BulkKind:
    if name not in KINDS:
        raise RequestError("NOT_FOUND", f"there is no action {name[:40]}")
    return KINDS[name]


async def preview(visit: Visit) -> BulkView:
    """Return what an action on many jobs would change, as of now."""
    kind = _kind(visit.asked("action"))
    as_of = visit.now
    ids = tuple(dict.fromkeys(visit.query.get("id", ())))[:MOST_IDS]
    if ids:
        found = [job async for job in _each(visit, ids[:SAMPLE])]
        return BulkView(
            kind=kind,
            search=None,
            ids=ids,
            total=len(ids),
            exact=True,
            sample=tuple(found),
            as_of=as_of,
        )
    search = await read_search(visit, visit.asked("q"))
    if search.faults:
        raise ValidationError([Fault("q", "INVALID", fault) for fault in search.faults])
    page = await visit.operations.search({**_filter(kind, search), "limit": SAMPLE})
    return BulkView(
        kind=kind,
        search=search,
        ids=(),
        total=page.total_count,
        exact=page.total_exact and (page.next_cursor is None or "group" not in search.filter),
        sample=page.jobs,
        as_of=as_of,
    )


async def _each(visit: Visit, ids: tuple[str, ...]) -> Any:
    for job_id in ids:
        try:
            yield await visit.operations.get(job_id, include_result=False)
        except NotFoundError:
            continue


def _filter(kind: BulkKind, search: SearchQuery) -> JobFilter:
    """Return the filter of an action; a retry selects failed jobs unless states are given."""
    wanted = dict(search.filter)
    if kind.name == "retry" and "states" not in wanted:
        wanted["states"] = [State.FAILED, State.DEAD_LETTER]
    return cast("JobFilter", wanted)


async def act(visit: Visit, kind: BulkKind) -> ActionDone:
    """Change many jobs, those of the preview."""
    selection: dict[str, Any] = {"as_of": visit.given("as_of") or iso(visit.now)}
    if ids := visit.form.get("id"):
        selection["job_ids"] = ids[:MOST_IDS]
    else:
        search = await read_search(visit, visit.given("q"))
        if search.faults:
            raise ValidationError([Fault("q", "INVALID", fault) for fault in search.faults])
        selection["filter"] = _filter(kind, search)
    changed, skipped, failed = await _changed(visit, kind, selection)
    notes = [f"{plural(skipped, 'job')} skipped"] if skipped else []
    notes += [f"{plural(failed, 'job')} could not be changed"] if failed else []
    message = ", ".join([f"{plural(changed, 'job')} {kind.done}", *notes])
    back = visit.given("to")
    to = ("failures", back) if back else ("jobs",)
    return ActionDone(message=f"{message}.", to=to, failed=bool(failed) or not changed)


async def _changed(visit: Visit, kind: BulkKind, selection: dict[str, Any]) -> tuple[int, int, int]:
    """Make the change; return how many changed, were skipped and failed."""
    operations = visit.operations
    if kind.name == "retry":
        retried = await operations.retry_batch(
            **selection,
            reset_attempts=visit.given("reset_attempts") == "1",
            priority=visit.given("priority") or None,
            delay=delay_of(visit),
        )
        return retried.retried, retried.skipped, retried.failed
    if kind.name == "cancel":
        cancelled = await operations.cancel_batch(**selection, reason=visit.given("reason"))
        return cancelled.cancelled, cancelled.skipped, cancelled.failed
    deleted = await operations.delete_batch(**selection)
    return deleted.deleted, deleted.skipped, deleted.failed


SCREENS = (
    ScreenRoute(
        path="/bulk",
        title="Change many jobs",
        template="bulk.html",
        call="retryJobs",
        view=preview,
        section="jobs",
        live=False,
    ),
)

ACTIONS = tuple(
    Action(path=f"/bulk/{kind.name}", call=kind.call, run=partial(act, kind=kind))
    for kind in KINDS.values()
)
