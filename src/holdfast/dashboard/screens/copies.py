"""Run a copy: a form filled from a job, to change and submit as a new one.

Secrets are masked in the form. Where the form still has the mask, the new job gets the value.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.api.errors import RequestError
from holdfast.dashboard.masking import masked, read_json, unmasked, written
from holdfast.dashboard.screens.job_actions import delay_of
from holdfast.dashboard.visits import PAYLOAD_FORM, Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import Fault, ForbiddenError, NotFoundError, ValidationError
from holdfast.model.results import SubmissionStatus
from holdfast.model.status import JobStatus, job_status
from holdfast.model.submission import Submission
from holdfast.observe.secrets import MASK

MOST_BYTES = 262_144
"""A larger payload does not fit into a form that people change."""


class CopyView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a form."""

    job: JobStatus
    payload: str
    tags: str
    is_masked: bool


async def copy(visit: Visit) -> CopyView:
    """Return the form for a copy of a job."""
    if not may_copy(visit):
        raise ForbiddenError("a copy needs the payload, which is not shown to you")
    job = await visit.operations.job(visit.path["job_id"])
    original = await _payload(visit, job.id)
    shown = masked(original, visit.service.app.redaction)
    status = job_status(job, as_text=True)
    tags = "\n".join(f"{name}={value}" for name, value in sorted(status.tags.items()))
    return CopyView(job=status, payload=written(shown), tags=tags, is_masked=shown != original)


def may_copy(visit: Visit) -> bool:
    """Whether the visitor sees payloads as they are, and may submit jobs."""
    settings = visit.settings
    shown = settings.show_payloads and settings.format_payload is None
    return shown and visit.may("getPayload") and visit.may("submitJob")


async def _payload(visit: Visit, job_id: str) -> Any:
    payload = (await visit.operations.payload(job_id)).payload
    if isinstance(payload, msgspec.Raw) and len(bytes(payload)) <= MOST_BYTES:
        try:
            return read_json(bytes(payload))
        except RecursionError:
            pass
    raise RequestError("INVALID_REQUEST", "only payloads of JSON up to 256 KiB can be copied")


async def submit(visit: Visit) -> ActionDone:
    """Submit the form as a new job."""
    payload = await _given(visit)
    result = await visit.operations.submit(
        Submission(
            type=visit.given("type"),
            payload=msgspec.Raw(payload.encode()),
            queue=visit.given("queue") or None,
            priority=visit.given("priority") or None,
            delay=delay_of(visit) or None,
            tags=_tags(visit.given("tags")),
        )
    )
    if result.status is not SubmissionStatus.ACCEPTED:
        return ActionDone(message="A job with the same key exists already.", failed=True)
    return ActionDone(message="Submitted as a new job.", to=("jobs", result.job_id))


async def _given(visit: Visit) -> str:
    """Return the payload of the form, with the values that it shows masked."""
    payload, source = visit.given("payload"), visit.given("copy_of")
    try:
        given = read_json(payload)
    except (ValueError, RecursionError) as error:
        raise ValidationError([Fault("payload", "INVALID", f"is not JSON: {error}")]) from None
    if not source or not may_copy(visit):
        return payload
    try:
        original = await _payload(visit, source)
    except NotFoundError:
        if MASK not in payload:
            return payload
        message = f"has masked values ({MASK}), and the job that has them is gone"
        raise ValidationError([Fault("payload", "INVALID", message)]) from None
    return written(unmasked(given, original, masked(original, visit.service.app.redaction)))


def _tags(text: str) -> dict[str, str]:
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise ValidationError([Fault("tags", "INVALID", "must be one NAME=VALUE per line")])
    return {name.strip(): value.strip() for name, _, value in pairs}


SCREENS = (
    ScreenRoute(
        path="/jobs/{job_id}/copy",
        title="Run a copy",
        template="copy.html",
        call="submitJob",
        view=copy,
        section="jobs",
        live=False,
    ),
)

ACTIONS = (Action(path="/submit", call="submitJob", run=submit, most_bytes=PAYLOAD_FORM),)
