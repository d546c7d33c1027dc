"""Run a copy: a form filled from a job, to change and submit as a new one.

Secrets are masked in the form. Where the form still has the mask, the new job gets the value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from json import JSONDecodeError
from typing import Any, TypeVar

import msgspec

from holdfast.api.errors import RequestError
from holdfast.dashboard.masking import compact, masked, read_form_json, written
from holdfast.dashboard.restoring import restored
from holdfast.dashboard.screens.job_actions import delay_of
from holdfast.dashboard.visits import (
    MOST_PAYLOAD,
    PAYLOAD_FORM,
    Action,
    ActionDone,
    ScreenRoute,
    Visit,
)
from holdfast.errors import Fault, ForbiddenError, NotFoundError, ValidationError
from holdfast.model.results import SubmissionStatus
from holdfast.model.status import JobStatus, job_status
from holdfast.model.submission import Submission
from holdfast.observe.redaction import Redaction
from holdfast.observe.secrets import MASK

T = TypeVar("T")

AT_ONCE = 2048
"""Bytes; a larger payload is masked and written beside the event loop."""
_few = ThreadPoolExecutor(2, "holdfast-copies")
"""A copy may take 0.6 s of work. All other pages share the threads of the loop."""


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
    data = await _payload(visit, job.id)
    show = partial(_shown, data, visit.service.app.redaction)
    payload, is_masked = await _beside(len(data), show)
    status = job_status(job, as_text=True)
    tags = "\n".join(f"{name}={value}" for name, value in sorted(status.tags.items()))
    return CopyView(job=status, payload=payload, tags=tags, is_masked=is_masked)


async def _beside(size: int, work: Callable[[], T]) -> T:
    if size <= AT_ONCE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_few, work)


def may_copy(visit: Visit) -> bool:
    """Whether the visitor sees payloads as they are, and may submit jobs."""
    settings = visit.settings
    shown = settings.show_payloads and settings.format_payload is None
    return shown and visit.may("getPayload") and visit.may("submitJob")


async def _payload(visit: Visit, job_id: str) -> bytes:
    payload = (await visit.operations.payload(job_id)).payload
    data = bytes(payload) if isinstance(payload, msgspec.Raw) else b""
    if not 0 < len(data) <= MOST_PAYLOAD:
        raise _not_copied("it must be JSON of up to 256 KiB")
    return data


def _original(data: bytes) -> Any:
    try:
        return read_form_json(data)
    except ValueError as error:
        raise _not_copied(f"it {error}") from None


def _not_copied(reason: str) -> RequestError:
    return RequestError("INVALID_REQUEST", f"This payload cannot be copied here: {reason}.")


def _shown(data: bytes, redaction: Redaction) -> tuple[str, bool]:
    """Return a payload for the form, and whether it has masks."""
    original = _original(data)
    shown = masked(original, redaction)
    for write in (written, compact):
        text = write(shown)
        if len(text.encode()) <= MOST_PAYLOAD:
            return text, shown is not original
    raise _not_copied("with its masks it has more than 256 KiB")


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
    payload, source = visit.given("payload").replace("\r\n", "\n"), visit.given("copy_of")
    size = len(payload.encode())
    if size > MOST_PAYLOAD:
        raise _wrong(f"may have {MOST_PAYLOAD} bytes, got {size}")
    original = await _source(visit, source, payload) if source else None
    work = partial(_whole, payload, original, visit.service.app.redaction)
    return await _beside(size + len(original or b""), work)


async def _source(visit: Visit, job_id: str, payload: str) -> bytes | None:
    """Return the payload that the form was filled from; None when nothing of it is masked."""
    try:
        if may_copy(visit):
            return await _payload(visit, job_id)
    except NotFoundError:
        pass
    if MASK not in payload:
        return None
    raise _wrong(f"has masked values ({MASK}), and the job that has them is gone")


def _whole(payload: str, source: bytes | None, redaction: Redaction) -> str:
    """Return the payload to submit."""
    try:
        given = read_form_json(payload)
    except ValueError as error:
        is_json = not isinstance(error, JSONDecodeError)
        raise _wrong(str(error) if is_json else f"is not JSON: {error}") from None
    if source is None:
        return payload
    original = _original(source)
    return compact(restored(given, original, masked(original, redaction)))


def _wrong(message: str) -> ValidationError:
    return ValidationError([Fault("payload", "INVALID", message)])


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
