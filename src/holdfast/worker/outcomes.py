"""How one run of a handler ended, as values."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.job import DependencyKind, Failure


class Succeeded(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler returned; ``result`` is JSON."""

    result: bytes | None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, or could not be called, or its result could not be stored."""

    failure: Failure


class Interruption(StrEnum):
    """Why a handler was stopped from outside."""

    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    LEASE_LOST = "LEASE_LOST"
    STOPPING = "STOPPING"
    QUARANTINED = "CROWDED"
    """It was never started: it must not run beside another suspect."""


class Interrupted(msgspec.Struct, frozen=True, tag=True):
    """The handler was stopped before it returned."""

    why: Interruption


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """The handler ended because its job waits for the jobs it spawned."""

    kind: DependencyKind


class Mismatched(msgspec.Struct, frozen=True, tag=True):
    """The payload does not fit the task of this worker: another one may know better."""

    failure: Failure


Outcome = Succeeded | Failed | Interrupted | Waiting | Mismatched
