"""What a screen or an action receives, and how each is declared: once, in its own module.

A screen turns operations into one frozen view model for its template. Its permission is that of
the API call it names, so that the dashboard and the API cannot differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import NotFoundError
from holdfast.http.application import ENDPOINTS
from holdfast.http.permissions import Caller, Permission
from holdfast.http.service import Service
from holdfast.operations.operations import Operations

PERMISSIONS: Mapping[str, Permission | None] = {each.name: each.permission for each in ENDPOINTS}
"""The permission of each call of the API, by its name in the OpenAPI document."""

SMALL_FORM = 65_536
LIST_FORM = 262_144
"""Bytes of a form with the ids of a thousand jobs."""
MOST_PAYLOAD = 262_144
"""Bytes of the largest payload that a form has; people change it by hand."""
PAYLOAD_FORM = 6 * MOST_PAYLOAD + SMALL_FORM
"""Bytes of a form with such a payload: a line end is sent as six bytes."""


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a dashboard shows."""

    title: str = "holdfast"
    show_payloads: bool = True
    """Whether payloads and results are shown at all."""
    format_payload: Callable[[Any], str] | None = None
    """Returns what is shown in place of a payload."""


class Visit:
    """One request for a page or an action."""

    __slots__ = ("caller", "form", "operations", "path", "query", "service", "settings")

    def __init__(
        self,
        service: Service,
        caller: Caller,
        *,
        settings: DashboardSettings,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        form: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.service = service
        self.caller = caller
        self.settings = settings
        self.operations: Operations = service.operations_for(caller)
        self.path = path
        self.query = query
        self.form = form or {}

    @property
    def now(self) -> datetime:
        """The time of the store."""
        return self.operations.store.now()

    def asked(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.query.get(name, [default])[-1]

    def given(self, name: str, default: str = "") -> str:
        """Return a field of the form, without white space around it."""
        return self.form.get(name, [default])[-1].strip()

    def may(self, call: str) -> bool:
        """Whether the caller may make a call of the API."""
        permission = PERMISSIONS[call]
        return permission is None or self.caller.may(permission)


class ScreenRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A page: its address, its view model and its template."""

    path: str
    """Such as ``/jobs/{job_id}``."""
    title: str
    template: str
    call: str
    """The call of the API whose permission it needs."""
    view: Callable[[Visit], Awaitable[object]]
    section: str = ""
    """The entry of the navigation that it belongs to."""
    live: bool = True
    """Whether it has fragments that change while it is open."""
    reads: int = 4
    """About how many times its view asks the store; the feed stays within a budget."""
    one_job: bool = False
    """Whether it shows one job, and changes only with that job."""


class ActionDone(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did, in a sentence, and the page that follows it."""

    message: str
    to: Sequence[str] = ()
    """The segments of the path; without them, the page that the action came from."""
    query: Mapping[str, str] = {}
    failed: bool = False
    """Whether nothing was done, because the state of things did not allow it."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A form that changes something; it is audited like the call of the API."""

    path: str
    call: str
    run: Callable[[Visit], Awaitable[ActionDone]]
    most_bytes: int = SMALL_FORM
    """How large its form may be, as it is sent."""


def require_found(value: Any, name: str) -> None:
    """NotFoundError when the result of a change says that there is no such job."""
    if getattr(value, "status", "") == "NOT_FOUND":
        raise NotFoundError(name)
