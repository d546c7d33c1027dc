"""Permissions: one per route, a set per role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.http.api_keys import Role


class Permission(StrEnum):
    """What a caller needs for a route."""

    __hash__ = str.__hash__  # that of enums is slow: it is written in Python

    SUBMIT = "submit"
    """Submit jobs."""
    READ = "read"
    """Read jobs; a submitter reads its own."""
    CHANGE = "change"
    """Cancel or release a job; a submitter only its own."""
    WATCH = "watch"
    """Read queues, workers, failures, statistics and metrics."""
    OPERATE = "operate"
    """Retry, delete, cancel many, pause and resume."""
    WORK = "work"
    """Claim and settle jobs."""
    ADMINISTER = "administer"
    """Read the audit log; add and remove webhooks."""


GRANTS: dict[Role, frozenset[Permission]] = {
    Role.SUBMITTER: frozenset({Permission.SUBMIT, Permission.READ, Permission.CHANGE}),
    Role.WORKER: frozenset({Permission.WORK}),
    Role.OBSERVER: frozenset({Permission.READ, Permission.WATCH}),
    Role.OPERATOR: frozenset(
        {Permission.READ, Permission.CHANGE, Permission.WATCH, Permission.OPERATE}
    ),
    Role.ADMIN: frozenset(Permission),
}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The key that makes a request, or a caller without a key."""

    key_id: str = ""
    name: str = "anyone on this machine"
    role: Role = Role.ADMIN
    namespace: str = ""
    rate: int | None = None
    live_jobs: int | None = None

    def may(self, permission: Permission) -> bool:
        """Whether the role allows it."""
        return permission in GRANTS[self.role]

    @property
    def only_own(self) -> bool:
        """Whether the caller sees only jobs that it submitted."""
        return self.role is Role.SUBMITTER

    @property
    def traces(self) -> bool:
        """Whether the caller may see details of handlers: stack traces, contexts, hosts."""
        return self.role is not Role.SUBMITTER


LOCAL_CALLER = Caller()
"""The caller while no key exists: then only this machine may call."""

Authorize = Callable[[Mapping[str, Any]], Caller | Awaitable[Caller | None] | None]
"""The login of a site: takes the ASGI scope of a request; None: the request is refused."""
