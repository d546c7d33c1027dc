"""Who may do what: one permission per route, a set of permissions per role."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.http.api_keys import Role


class Permission(StrEnum):
    """What a route asks of its caller."""

    __hash__ = str.__hash__  # the one of enums is written in Python

    SUBMIT = "submit"
    """Put jobs in."""
    READ = "read"
    """See jobs; a submitter sees its own."""
    CHANGE = "change"
    """Cancel or release a job; a submitter its own."""
    WATCH = "watch"
    """See queues, workers, failures, statistics and metrics."""
    OPERATE = "operate"
    """Retry, delete, cancel many, pause and resume."""
    WORK = "work"
    """Claim jobs and say how they went."""
    ADMINISTER = "administer"
    """See who changed what."""


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
    """Whoever makes a request."""

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
        """Whether it sees only the jobs it submitted."""
        return self.role is Role.SUBMITTER

    @property
    def traces(self) -> bool:
        """Whether it may see what shows the inside of handlers: stack traces, hosts."""
        return self.role is not Role.SUBMITTER


ANYONE = Caller()
"""The caller while no key exists: then the service listens on this machine only."""
