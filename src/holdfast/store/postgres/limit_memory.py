"""What a store remembers of the limits between two claims, so that most read nothing of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.model.job import Job
from holdfast.store.postgres.claim_position import MAX_CLAIM_KINDS, Scopes, Types
from holdfast.store.values import Claim, LimitRule


class JobKind(msgspec.Struct, frozen=True):
    """What decides which limits apply to a job."""

    queue: str
    type: str
    limit_key: str

    def scopes(self) -> Iterator[tuple[str, str]]:
        """Yield each scope, with the name of the rule that limits it."""
        for scope in (f"queue:{self.queue}", f"task:{self.type}"):
            yield scope, scope
        if self.limit_key:
            rule = f"key:{self.type}"
            yield f"{rule}:{self.limit_key}", rule


class LimitMemory:
    """The limits of a store as its last calls found them."""

    def __init__(self) -> None:
        self.rules: dict[str, LimitRule] = {}
        """The limits by their names."""
        self.full: set[str] = set()
        """The scopes that had no room."""
        self._freed: set[str] = set()
        """Those of them under which a job of this process has ended since."""
        self._limited: set[tuple[tuple[str, ...], Types]] = set()
        """Queues and types in which jobs with a limit that has room were left."""

    def begins_limited(self, want: Claim) -> bool:
        """Whether a job with a limit that has room is likely to be among the first."""
        freed = applicable(self._freed, want)
        self._freed -= freed
        return bool(freed) or (want.queues, want.types) in self._limited

    def update(self, rules: dict[str, LimitRule], full: set[str], want: Claim) -> bool:
        """Record the limits; return whether one that was full has room again."""
        freed = applicable(self.full - full, want)
        self.rules, self.full = rules, full
        return bool(freed)

    def claimed(self, want: Claim, *, left: bool) -> None:
        """Record whether a claim left jobs with a limit that has room."""
        if len(self._limited) >= MAX_CLAIM_KINDS:
            self._limited.clear()
        if left:
            self._limited.add((want.queues, want.types))
        else:
            self._limited.discard((want.queues, want.types))

    def ended(self, job: Job) -> bool:
        """Record that a job no longer runs; return whether it made room: in a rate it does not."""
        scopes = [
            scope
            for scope, rule in JobKind(job.queue, job.type, job.limit_key or "").scopes()
            if (limit := self.rules.get(rule)) and limit.concurrency is not None
        ]
        self._freed.update(self.full.intersection(scopes))
        return bool(scopes)


def rule_of(scope: str) -> str:
    """Return the name of the rule that limits a scope."""
    kind, _, rest = scope.partition(":")
    return f"key:{rest.partition(':')[0]}" if kind == "key" else scope


def applicable(scopes: Iterable[str], want: Claim) -> Scopes:
    """Return the limits that may apply to jobs that a claim could return."""
    return frozenset(scope for scope in scopes if _applies(rule_of(scope), want))


def _applies(rule: str, want: Claim) -> bool:
    kind, _, name = rule.partition(":")
    if kind == "queue":
        return name in want.queues
    return want.types is None or name in want.types
