"""A payload or result as a whole, as a file of text: pages show the beginning of a large one.

It is masked as the page is, and needs the same permission. A browser saves it and opens nothing.
"""

from __future__ import annotations

from functools import partial

import msgspec

from holdfast.api.errors import RequestError
from holdfast.dashboard.payloads import EXPENSE, formatted_text, whole_text
from holdfast.dashboard.replies import WebReply
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.errors import ForbiddenError
from holdfast.model.job import State
from holdfast.model.status import job_payload, job_status
from holdfast.runtime.off_loop import off_loop

MOST_BYTES = 1_100_000
"""A payload of the default limit. Decoding 1 MiB stops every thread for 45 ms."""


async def payload(visit: Visit) -> WebReply:
    """Return the payload of a job as a file."""
    _check_shown(visit)
    stored = await visit.operations.job(visit.path["job_id"])
    found = job_payload(stored, as_text=True).payload
    hook = visit.settings.format_payload
    if hook is not None:
        status = job_status(stored, with_result=False, as_text=True)
        return _file(visit, "payload", formatted_text(status, found, hook))
    return _file(visit, "payload", await _text(visit, found))


async def result(visit: Visit) -> WebReply:
    """Return the result of a job as a file."""
    _check_shown(visit)
    found = job_status(await visit.operations.job(visit.path["job_id"]), as_text=True)
    if found.state is not State.COMPLETED or found.result is None:
        raise RequestError("NOT_FOUND", "the job has no result")
    return _file(visit, "result", await _text(visit, found.result.output))


def _check_shown(visit: Visit) -> None:
    if not visit.settings.show_payloads:
        raise ForbiddenError("this dashboard does not show payloads")


async def _text(visit: Visit, value: object) -> str:
    size = len(bytes(value)) if isinstance(value, msgspec.Raw | bytes) else 0
    if size > MOST_BYTES:
        raise RequestError("TOO_LARGE", f"more than {MOST_BYTES:,} bytes are not masked at once")
    try:
        work = partial(whole_text, value, visit.service.app.redaction)
        return await off_loop(EXPENSE * size, work)
    except RecursionError:
        raise RequestError("INVALID_REQUEST", "it is nested too deeply to be shown") from None


def _file(visit: Visit, kind: str, text: str) -> WebReply:
    name = "".join(each if each.isalnum() and each.isascii() else "-" for each in _id(visit))
    return WebReply(
        body=text.encode("utf-8", "replace"),
        media_type="text/plain; charset=utf-8",
        headers=(("content-disposition", f'attachment; filename="{name}.{kind}.txt"'),),
    )


def _id(visit: Visit) -> str:
    return visit.path["job_id"][:80]


SCREENS = (
    ScreenRoute(
        path="/jobs/{job_id}/payload",
        title="",
        template="",
        call="getPayload",
        view=payload,
        live=False,
    ),
    ScreenRoute(
        path="/jobs/{job_id}/result",
        title="",
        template="",
        call="getResult",
        view=result,
        live=False,
    ),
)
