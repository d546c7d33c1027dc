"""At most one job for each key at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from hashlib import blake2b

from holdfast.model.job import DedupeKey, Job
from holdfast.verify.findings import Finding, Kind

FOR_EVER = float("inf")


class Keys:
    """Remembers until when each key is taken, in about 150 bytes; give it jobs by age."""

    def __init__(self, slack: timedelta) -> None:
        self._slack = slack.total_seconds()
        self._taken: dict[int, float] = {}

    def see(self, job: Job) -> Iterator[Finding]:
        """Name a job whose key was another's when it was submitted."""
        if job.dedupe is None:
            return
        name, ends = _digest(job.dedupe), job.dedupe.expires_at
        if self._taken.get(name, 0.0) > job.created_at.timestamp() + self._slack:
            told = f"has the key {job.dedupe.key!r} of {job.dedupe.scope}, which was another's"
            yield Finding(Kind.TWO_FOR_ONE_KEY, job.id, told)
        self._taken[name] = FOR_EVER if ends is None else ends.timestamp()


def _digest(key: DedupeKey) -> int:
    named = f"{key.scope}\0{key.key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(named, digest_size=8).digest())
