"""What clients and handlers saw outside the store; the store must agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.model.job import Event, Job, State, Transition
from holdfast.verify.findings import Kind, Violation

_ENDS_A_RUN = frozenset(
    {
        *(Event.LAPSE, Event.RETRY, Event.GIVE_BACK, Event.WAIT),
        *(Event.FAIL, Event.EXHAUST, Event.EXPIRE),
    }
)


class Witness:
    """Records the responses that clients received and the claims that had an effect."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        """Jobs that the store confirmed to a client."""
        self.cancelled: set[str] = set()
        """Jobs whose cancellation the store confirmed to a client."""
        self.knows_effects = False
        self.effects = 0
        self.repeated = 0
        """Effects after the first one of their job."""
        self._claims: dict[str, int] = {}
        self._twice: dict[str, int] = {}

    def effect(self, job_id: str, version: int) -> None:
        """Record that a claim of a job had its effect."""
        self.knows_effects = True
        self.effects += 1
        seen, bit = self._claims.get(job_id, 0), 1 << version
        self.repeated += seen != 0
        if seen & bit:
            self._twice[job_id] = version
        self._claims[job_id] = seen | bit

    def contradictions(self, job: Job, history: Sequence[Transition]) -> Iterator[Violation]:
        """Report where a job's record contradicts what clients and handlers saw."""
        self.accepted.discard(job.id)
        if job.id in self.cancelled and job.state is not State.CANCELLED:
            text = f"was reported as cancelled, but is {job.state}"
            yield Violation(Kind.CANCEL_IGNORED, job.id, text)
        if self.knows_effects:
            yield from self._effects(job, history)

    def lost(self) -> Iterator[Violation]:
        """Report every accepted job that was not checked; call this last."""
        for job_id in sorted(self.accepted):
            yield Violation(Kind.LOST, job_id, "was accepted, but is not in the store")

    def _effects(self, job: Job, history: Sequence[Transition]) -> Iterator[Violation]:
        seen = self._claims.get(job.id, 0)
        if job.state is State.COMPLETED and not seen >> job.lease_version & 1:
            text = f"completed under claim {job.lease_version}, which had no effect"
            yield Violation(Kind.MISSING_EFFECT, job.id, text)
        if job.id in self._twice:
            text = f"had its effect twice under claim {self._twice[job.id]}"
            yield Violation(Kind.REPEATED_EFFECT, job.id, text)
        if seen.bit_count() > 1 or seen >> job.lease_version > 1:
            yield from self._unexplained(job, history, seen)

    def _unexplained(
        self, job: Job, history: Sequence[Transition], seen: int
    ) -> Iterator[Violation]:
        """Every claim that had an effect, except the last, must have ended without success."""
        ended = {edge.lease_version for edge in history if edge.event in _ENDS_A_RUN}
        claims = {edge.lease_version for edge in history if edge.event is Event.CLAIM}
        versions = [v for v in range(seen.bit_length()) if seen >> v & 1]
        for version in versions:
            if version not in claims:
                text = f"had an effect under claim {version}, which is not in its history"
                yield Violation(Kind.REPEATED_EFFECT, job.id, text)
            elif version != versions[-1] and version not in ended:
                text = f"had another effect although claim {version} did not end"
                yield Violation(Kind.REPEATED_EFFECT, job.id, text)
