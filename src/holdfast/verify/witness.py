"""What was seen outside the store, by clients and handlers: the store must agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.model.job import Event, Job, State, Transition
from holdfast.verify.findings import Kind, Violation

_ENDS_A_RUN = frozenset(
    {Event.LAPSE, Event.RETRY, Event.GIVE_BACK, Event.FAIL, Event.EXHAUST, Event.EXPIRE}
)


class Witness:
    """Remembers what clients were told and which claims had an effect."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        """Jobs that a client was told are stored."""
        self.cancelled: set[str] = set()
        """Jobs that a client was told are cancelled."""
        self.knows_effects = False
        self.effects = 0
        self.repeated = 0
        """Effects that came after the first one of their job."""
        self._claims: dict[str, int] = {}
        self._twice: dict[str, int] = {}

    def effect(self, job_id: str, version: int) -> None:
        """Hear that a claim of a job had its effect."""
        self.knows_effects = True
        self.effects += 1
        seen, bit = self._claims.get(job_id, 0), 1 << version
        self.repeated += seen != 0
        if seen & bit:
            self._twice[job_id] = version
        self._claims[job_id] = seen | bit

    def doubts(self, job: Job, history: Sequence[Transition]) -> Iterator[Violation]:
        """Name what a job's record says otherwise than was seen."""
        self.accepted.discard(job.id)
        if job.id in self.cancelled and job.state is not State.CANCELLED:
            told = f"was said to be cancelled and is {job.state}"
            yield Violation(Kind.CANCEL_LIE, job.id, told)
        if self.knows_effects:
            yield from self._effects(job, history)

    def lost(self) -> Iterator[Violation]:
        """Name every job that was accepted and never shown; call it last."""
        for job_id in sorted(self.accepted):
            yield Violation(Kind.LOST, job_id, "was accepted and is lost")

    def _effects(self, job: Job, history: Sequence[Transition]) -> Iterator[Violation]:
        seen = self._claims.get(job.id, 0)
        if job.state is State.COMPLETED and not seen >> job.lease_version & 1:
            told = f"completed under claim {job.lease_version}, which had no effect"
            yield Violation(Kind.MISSING_EFFECT, job.id, told)
        if job.id in self._twice:
            told = f"had its effect twice under claim {self._twice[job.id]}"
            yield Violation(Kind.REPEATED_EFFECT, job.id, told)
        if seen.bit_count() > 1 or seen >> job.lease_version > 1:
            yield from self._explained(job, history, seen)

    def _explained(self, job: Job, history: Sequence[Transition], seen: int) -> Iterator[Violation]:
        """Every claim that had an effect but was not the last must have come to nothing."""
        ended = {edge.lease_version for edge in history if edge.event in _ENDS_A_RUN}
        claims = {edge.lease_version for edge in history if edge.event is Event.CLAIM}
        versions = [v for v in range(seen.bit_length()) if seen >> v & 1]
        for version in versions:
            if version not in claims:
                told = f"had an effect under claim {version}, which nobody made"
                yield Violation(Kind.REPEATED_EFFECT, job.id, told)
            elif version != versions[-1] and version not in ended:
                told = f"had another effect although claim {version} stood"
                yield Violation(Kind.REPEATED_EFFECT, job.id, told)
