"""The system itself: what the doctor finds, who changed what, and which keys exist."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.api.responses import AuditEntry
from holdfast.dashboard.findings import ShownFinding, shown_finding, shown_findings
from holdfast.dashboard.parts import ListPart, part_of
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.http.api_keys import ApiKey, list_keys
from holdfast.http.audit import Audit
from holdfast.operations.doctor import examine
from holdfast.store import Level

LISTED = 50


class DoctorView(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor finds."""

    problems: tuple[ShownFinding, ...]
    count: int
    fine: tuple[ShownFinding, ...]
    errors: int
    whole: bool
    """Whether the caller sees the whole store, as the doctor does."""


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """An API key; without its digest."""

    id: str
    name: str
    role: str
    namespace: str
    valid: bool
    created_at: object
    expires_at: object
    revoked_at: object
    limits: str


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit log, and the keys."""

    entries: tuple[AuditEntry, ...]
    after: str | None
    keys: tuple[KeyRow, ...]
    part: ListPart
    """Which of the keys."""
    is_first: bool


async def doctor(visit: Visit) -> DoctorView:
    """Return the findings of all checks; of the whole store, so only for its operators."""
    if visit.caller.namespace or visit.caller.only_own:
        return DoctorView(problems=(), count=0, fine=(), errors=0, whole=False)
    app = visit.service.app
    found = await examine(app.store, retention=app.retention)
    problems = [each for each in found if each.level is not Level.OK]
    problems.sort(key=lambda each: each.level is not Level.ERROR)
    return DoctorView(
        problems=shown_findings(problems),
        count=len(problems),
        fine=tuple(shown_finding(each) for each in found if each.level is Level.OK),
        errors=sum(each.level is Level.ERROR for each in problems),
        whole=True,
    )


async def audit(visit: Visit) -> AuditView:
    """Return who changed what, newest first, and the keys."""
    cursor = visit.asked("cursor")
    entries, after = await Audit(visit.operations.store).page(cursor, LISTED)
    keys, part = part_of(visit, [] if cursor else await _keys(visit))
    return AuditView(
        entries=tuple(entries),
        after=after,
        keys=tuple(_row(key, visit.now) for key in keys),
        part=part,
        is_first=not cursor,
    )


async def _keys(visit: Visit) -> list[ApiKey]:
    """Return the keys that the caller administers: all, or those of its namespace."""
    space = visit.caller.namespace
    found = await list_keys(visit.service.app.store)
    return [key for key in reversed(found) if not space or key.namespace == space]


def _row(key: ApiKey, now: datetime) -> KeyRow:
    return KeyRow(
        id=key.id,
        name=key.name,
        role=key.role.value,
        namespace=key.namespace,
        valid=key.is_valid(now),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        limits=_limits(key.rate, key.live_jobs),
    )


def _limits(rate: int | None, live_jobs: int | None) -> str:
    parts = [f"{rate} requests per second"] if rate else []
    if live_jobs:
        parts.append(f"{live_jobs} unfinished jobs")
    return ", ".join(parts)


SCREENS = (
    ScreenRoute(
        path="/doctor",
        title="Doctor",
        template="doctor.html",
        call="listQueues",
        view=doctor,
        section="system",
        live=False,
    ),
    ScreenRoute(
        path="/audit",
        title="Audit and keys",
        template="audit.html",
        call="listAudit",
        view=audit,
        section="system",
        live=False,
    ),
)
