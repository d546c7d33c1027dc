"""Runs the action of a form: token, permission and audit are those of the API call it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from holdfast.api.errors import RequestError, error_body
from holdfast.dashboard.access import Visitor
from holdfast.dashboard.notices import Notice
from holdfast.dashboard.security import TOKEN_FIELD, FormTokens
from holdfast.dashboard.visits import Action, Visit
from holdfast.errors import NotFoundError, ValidationError
from holdfast.http.audit import Audit, detail_of
from holdfast.http.responses import Receive

MOST_BYTES = 4 * 1024 * 1024
"""A form with a payload of a megabyte, encoded for a form."""
ARRIVAL = 30.0
FORM = b"application/x-www-form-urlencoded"


async def read_form(headers: Mapping[bytes, bytes], receive: Receive) -> dict[str, list[str]]:
    """Read the fields of a form; RequestError when it is something else, too large or too slow."""
    if headers.get(b"content-type", FORM).partition(b";")[0].strip().lower() != FORM:
        raise RequestError("UNSUPPORTED_MEDIA_TYPE", "must be a form")
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(ARRIVAL):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestError("REQUEST_TIMEOUT")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MOST_BYTES:
                    raise RequestError("TOO_LARGE", f"a form may have {MOST_BYTES} bytes")
                more = message.get("more_body", False)
    except TimeoutError:
        raise RequestError("REQUEST_TIMEOUT") from None
    text = b"".join(parts).decode("utf-8", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=2000)
    except ValueError:
        raise RequestError("TOO_LARGE", "a form may have 2000 fields") from None


class ActionRunner:
    """Runs actions and writes them to the audit log."""

    def __init__(self, tokens: FormTokens) -> None:
        self._tokens = tokens

    async def run(
        self,
        action: Action,
        visit: Visit,
        visitor: Visitor,
        scope: Mapping[str, Any],
        *,
        request_id: str,
    ) -> tuple[Notice, Sequence[str], Mapping[str, str]]:
        """Run an action; return what to say, and the page that follows.

        What the visitor gave wrongly, or what is gone, is said on that page.
        """
        self._tokens.check(visitor.subject, visit.given(TOKEN_FIELD))
        audit = Audit(visit.operations.store)
        client = scope.get("client")
        entry = await audit.begin(
            visit.caller,
            action.call,
            target=scope["path"],
            detail=detail_of(_fields(visit.form), visit.service.app.redaction),
            client=client[0] if client else "",
            request_id=request_id,
        )
        try:
            done = await action.run(visit)
        except (ValidationError, NotFoundError) as error:
            await audit.end(entry, error_body(error)[0])
            return Notice(_sentence(error), failed=True), (), {}
        except BaseException as error:
            await audit.end(entry, error_body(error)[0])
            raise
        await audit.end(entry, 200)
        return Notice(done.message, done.failed), done.to, done.query


def _fields(form: Mapping[str, Sequence[str]]) -> bytes:
    """Return the fields of a form for the audit log, without its token and its way back."""
    kept = {n: v if len(v) > 1 else v[0] for n, v in form.items() if n not in (TOKEN_FIELD, "back")}
    return msgspec.json.encode(kept)


def _sentence(error: ValidationError | NotFoundError) -> str:
    if isinstance(error, ValidationError):
        faults = "; ".join(f"{fault.field} {fault.message}".strip() for fault in error.faults)
        return f"Nothing was changed: {faults}."
    return f"Nothing was changed: there is {error}."
