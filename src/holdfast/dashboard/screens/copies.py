"""Run a copy: a form filled from a job, to change and submit as a new one."""

from __future__ import annotations

import msgspec

from holdfast.api.errors import RequestError
from holdfast.dashboard.screens.job_actions import delay_of
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import Fault, ForbiddenError, ValidationError
from holdfast.model.results import SubmissionStatus
from holdfast.model.status import JobStatus, job_status
from holdfast.model.submission import Submission

MOST_BYTES = 262_144
"""A larger payload does not fit into a form that people change."""


class CopyView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a form."""

    job: JobStatus
    payload: str
    tags: str


async def copy(visit: Visit) -> CopyView:
    """Return the form for a copy of a job."""
    if not (visit.settings.show_payloads and visit.may("getPayload")):
        raise ForbiddenError("a copy needs the payload, which is not shown to you")
    job = await visit.operations.job(visit.path["job_id"])
    payload = (await visit.operations.payload(job.id)).payload
    if not isinstance(payload, msgspec.Raw) or len(bytes(payload)) > MOST_BYTES:
        raise RequestError("INVALID_REQUEST", "only payloads of JSON up to 256 KiB can be copied")
    text = msgspec.json.format(bytes(payload), indent=2).decode()
    shown = job_status(job, as_text=True)
    tags = "\n".join(f"{name}={value}" for name, value in sorted(shown.tags.items()))
    return CopyView(job=shown, payload=text, tags=tags)


async def submit(visit: Visit) -> ActionDone:
    """Submit the form as a new job."""
    payload = visit.given("payload")
    try:
        msgspec.json.decode(payload)
    except ValueError as error:
        raise ValidationError([Fault("payload", "INVALID", f"is not JSON: {error}")]) from None
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

ACTIONS = (Action(path="/submit", call="submitJob", run=submit),)
