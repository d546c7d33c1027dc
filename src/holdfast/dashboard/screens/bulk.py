"""Actions on many jobs: a preview that binds the instant, then an operation on exactly those.

Jobs that begin to match after the preview are not touched: nobody has seen them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.api.errors import RequestError
from holdfast.dashboard.formats import iso, plural
from holdfast.dashboard.screens.job_actions import delay_of
from holdfast.dashboard.screens.jobs import read_search
from holdfast.dashboard.search import SearchQuery
from holdfast.dashboard.selections import Selection, selection_of
from holdfast.dashboard.visits import LIST_FORM, Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.model.bulk import BulkAction, BulkOperation, BulkPreview
from holdfast.model.status import JobStatus

SAMPLE = 10
MOST_IDS = 1000
PATIENCE = 2.0
"""Seconds that a form waits for a short operation; a longer one has a page of its own."""
LISTED = 50
UNCONFIRMED = 1000
"""Jobs that can be deleted without ticking a box that has their number."""
NOTHING = "no job is selected"


class BulkKind(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done with many jobs."""

    action: BulkAction
    verb: str
    done: str
    explanation: str
    tone: str = ""


KINDS = {
    kind.action.value: kind
    for kind in (
        BulkKind(
            action=BulkAction.RETRY,
            verb="Retry",
            done="retried",
            explanation="Failed and dead-letter jobs among them run again; others are skipped.",
        ),
        BulkKind(
            action=BulkAction.CANCEL,
            verb="Cancel",
            done="cancelled",
            tone="bad",
            explanation="Waiting jobs end at once. Running ones are asked to stop.",
        ),
        BulkKind(
            action=BulkAction.DELETE,
            verb="Delete",
            done="deleted",
            tone="bad",
            explanation="Ended jobs are removed with their history. This cannot be undone.",
        ),
        BulkKind(
            action=BulkAction.REPRIORITISE,
            verb="Change the priority of",
            done="reprioritised",
            explanation="Jobs that wait get another priority.",
        ),
        BulkKind(
            action=BulkAction.RELEASE,
            verb="Release",
            done="released",
            explanation="Jobs that are held may start.",
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
    group: str
    """The failure group to return to."""
    back: str
    """The search to return to."""

    @property
    def is_chosen(self) -> bool:
        """Whether anything was selected: nothing ticked does not mean all jobs."""
        return self.search is not None or bool(self.ids)

    @property
    def must_confirm(self) -> bool:
        """Whether a box with the number must be ticked."""
        return _must_confirm(self.kind, self.total)


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    """One operation and how far it is."""

    operation: BulkOperation
    kind: BulkKind
    selection: Selection
    share: float


class OperationsView(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of late, the newest first."""

    operations: tuple[BulkOperation, ...]
    selections: Mapping[str, Selection]
    """What each selected, by its id."""
    verbs: Mapping[str, str]
    """What each action does."""
    after: str | None


def _kind(name: str) -> BulkKind:
    if name not in KINDS:
        raise RequestError("NOT_FOUND", f"there is no action {name[:40]}")
    return KINDS[name]


async def preview(visit: Visit) -> BulkView:
    """Return what an action on many jobs would change, as of now."""
    kind = _kind(visit.asked("action"))
    ids = tuple(dict.fromkeys(visit.query.get("id", ())))[:MOST_IDS]
    text, as_of = visit.asked("q"), visit.asked("as_of") or None
    search = await _search(visit, text) if not ids and (text or visit.asked("all")) else None
    found = BulkPreview(action=kind.action, as_of=visit.now, matched=0, matched_exact=True)
    if ids or search:
        filter_ = None if search is None else search.filter
        found = await visit.operations.bulk.preview(
            kind.action, filter=filter_, ids=ids or None, as_of=as_of
        )
    return BulkView(
        kind=kind,
        search=search,
        ids=ids,
        total=found.matched,
        exact=found.matched_exact,
        sample=tuple([job async for job in _each(visit, found.examples[:SAMPLE])]),
        as_of=found.as_of,
        group=visit.asked("to"),
        back=text or visit.asked("from"),
    )


def _must_confirm(kind: BulkKind, total: int) -> bool:
    return kind.action is BulkAction.DELETE and total > UNCONFIRMED


async def _search(visit: Visit, text: str) -> SearchQuery:
    search = await read_search(visit, text)
    if search.job_id:
        search = replace(search, faults=(*search.faults, "id: select the job"))
    if search.faults:
        raise ValidationError([Fault("q", "INVALID", fault) for fault in search.faults])
    return search


async def _each(visit: Visit, ids: tuple[str, ...]) -> Any:
    for job_id in ids:
        try:
            yield await visit.operations.get(job_id, include_result=False)
        except NotFoundError:
            continue


async def act(visit: Visit, kind: BulkKind) -> ActionDone:
    """Start the operation on the jobs of the preview; wait for it if it is short."""
    ids = visit.form.get("id")
    if not ids and "q" not in visit.form:
        raise ValidationError([Fault("", "REQUIRED", NOTHING)])
    search = None if ids else await _search(visit, visit.given("q"))
    if search is not None and not visit.given("confirmed"):
        await _check_size(visit, kind, search)
    group = visit.given("to")
    done = await run(
        visit,
        kind,
        to=("failures", group) if group else ("jobs",),
        filter=None if search is None else search.filter,
        ids=list(ids)[:MOST_IDS] if ids else None,
        as_of=visit.given("as_of") or iso(visit.now),
        **_options(visit, kind),
    )
    return replace(done, query={"q": visit.given("from")}) if done.to == ("jobs",) else done


async def _check_size(visit: Visit, kind: BulkKind, search: SearchQuery) -> None:
    if kind.action is not BulkAction.DELETE:
        return
    found = await visit.operations.bulk.preview(
        kind.action, filter=search.filter, as_of=visit.given("as_of") or None
    )
    if _must_confirm(kind, found.matched):
        message = f"tick the box to delete more than {UNCONFIRMED} jobs"
        raise ValidationError([Fault("", "REQUIRED", message)])


async def run(visit: Visit, kind: BulkKind, *, to: Sequence[str] = (), **terms: Any) -> ActionDone:
    """Start an operation; return what it did, or the way to its page when it takes longer."""
    bulk = visit.operations.bulk
    started = await bulk.start(kind.action, by=visit.caller.name, **terms)
    visit.service.bulk.wake()
    try:
        ended = await bulk.wait(started.id, timeout=PATIENCE)
    except TimeoutError:
        return ActionDone(message="", to=("operations", started.id))
    return ActionDone(message=_summary(ended, kind), to=to, failed=not ended.done)


def _options(visit: Visit, kind: BulkKind) -> dict[str, Any]:
    match kind.action:
        case BulkAction.RETRY:
            return {
                "reset_attempts": visit.given("reset_attempts") == "1",
                "priority": visit.given("priority") or None,
                "delay": delay_of(visit),
            }
        case BulkAction.CANCEL:
            return {"reason": visit.given("reason")}
        case BulkAction.REPRIORITISE:
            return {"priority": visit.given("priority") or None}
        case _:
            return {}


def _summary(operation: BulkOperation, kind: BulkKind) -> str:
    """Return what an operation did, in a sentence."""
    notes = [f"{plural(operation.skipped, 'job')} skipped"] if operation.skipped else []
    if operation.failed:
        notes.append(f"{plural(operation.failed, 'job')} could not be changed")
    if operation.error:
        notes.append(f"it stopped: {operation.error}")
    return ", ".join([f"{plural(operation.done, 'job')} {kind.done}", *notes]) + "."


async def operation(visit: Visit) -> OperationView:
    """Return one operation."""
    found = await visit.operations.bulk.get(visit.path["operation"])
    examined = found.done + found.skipped + found.failed
    return OperationView(
        operation=found,
        kind=KINDS[found.action.value],
        selection=selection_of(found),
        share=1.0 if found.ended else min(0.99, examined / max(1, found.matched)),
    )


async def operations(visit: Visit) -> OperationsView:
    """Return the operations of late."""
    found = await visit.operations.bulk.list(after=visit.asked("after"), limit=LISTED)
    more = found[-1].id if len(found) == LISTED else None
    return OperationsView(
        operations=tuple(found),
        verbs={name: kind.verb for name, kind in KINDS.items()},
        selections={each.id: selection_of(each) for each in found},
        after=more,
    )


async def stop(visit: Visit) -> ActionDone:
    """Cancel an operation; what it has changed stays."""
    await visit.operations.bulk.cancel(visit.path["operation"])
    return ActionDone(message="The operation stops; what it has changed stays.")


SCREENS = (
    ScreenRoute(
        path="/bulk",
        title="Change many jobs",
        template="bulk.html",
        call="startOperation",
        view=preview,
        section="jobs",
        live=False,
    ),
    ScreenRoute(
        path="/operations",
        title="Operations",
        template="operations.html",
        call="listOperations",
        view=operations,
        section="system",
        reads=1,
    ),
    ScreenRoute(
        path="/operations/{operation}",
        title="Operation",
        template="operation.html",
        call="getOperation",
        view=operation,
        section="system",
        reads=1,
    ),
)

ACTIONS = (
    *(
        Action(
            path=f"/bulk/{name}",
            call="startOperation",
            run=partial(act, kind=kind),
            most_bytes=LIST_FORM,
        )
        for name, kind in KINDS.items()
    ),
    Action(path="/operations/{operation}/cancel", call="cancelOperation", run=stop),
)
