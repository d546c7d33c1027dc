"""Runs the action of a form: token, permission and audit are those of the API call it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.api.errors import error_body
from holdfast.dashboard.access import Visitor
from holdfast.dashboard.notices import Notice
from holdfast.dashboard.security import TOKEN_FIELD, FormTokens
from holdfast.dashboard.visits import Action, Visit
from holdfast.errors import NotFoundError, ValidationError
from holdfast.http.audit import Audit, detail_of

MOST_NOTED = 8192
"""Characters of a field that the audit log looks at; it keeps fewer."""


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

        What is gone is said on that page; what the visitor gave wrongly is a ValidationError.
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
        except NotFoundError as error:
            await audit.end(entry, error_body(error)[0])
            return Notice(f"Nothing was changed: there is {error}.", failed=True), (), {}
        except BaseException as error:
            await audit.end(entry, error_body(error)[0])
            raise
        await audit.end(entry, 200)
        return Notice(done.message, done.failed), done.to, done.query


def _fields(form: Mapping[str, Sequence[str]]) -> bytes:
    """Return the fields of a form for the audit log, without its payload, token and way back."""
    kept = {}
    for name, values in form.items():
        if name not in _NOT_NOTED:
            cut = [value[:MOST_NOTED] for value in values]
            kept[name[:MOST_NOTED]] = cut if len(cut) > 1 else cut[0]
    return msgspec.json.encode(kept)


_NOT_NOTED = ("payload", "back", TOKEN_FIELD)


def sentence_of(error: ValidationError) -> str:
    """Return what was given wrongly, in a sentence."""
    faults = "; ".join(f"{fault.field} {fault.message}".strip() for fault in error.faults)
    return f"Nothing was changed: {faults}."
