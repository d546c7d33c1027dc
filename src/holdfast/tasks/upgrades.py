"""Payloads of earlier versions of a task: upgraded step by step before the handler is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.errors import Fault, PermanentError
from holdfast.model.job import Encoding, Job, read_extra
from holdfast.model.payload import encode
from holdfast.model.versions import INVALID

Upgrade = Callable[[Any], Any]
"""Returns the payload of the next version for one of a version."""


class OnMismatch(StrEnum):
    """What happens to a job whose payload does not fit the task of the worker that claims it."""

    WAIT = "wait"
    """It waits for a worker of another version and uses up no attempt."""
    FAIL = "fail"
    """It fails for good."""


class MismatchError(PermanentError):
    """A payload that does not fit the task of this worker."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=INVALID)


def upgraded(job: Job, version: int, upgrades: Mapping[int, Upgrade]) -> Job:
    """Return a job with its payload as a version of the task has it.

    Raise MismatchError for a payload of a later version. A step without a function changes
    nothing.
    """
    named = job.extra is not None and b'"version"' in job.extra  # quicker than to read it
    given = read_extra(job.extra).version if named else 1
    if given == version:
        return job
    if given > version:
        message = f"the payload has version {given} of the task, this worker has version {version}"
        raise MismatchError(message)
    steps = [upgrades[step] for step in range(given, version) if step in upgrades]
    if not steps:
        return job
    is_bytes = job.encoding is Encoding.BYTES
    payload: object = job.payload if is_bytes else msgspec.json.decode(job.payload)
    for upgrade in steps:
        payload = upgrade(payload)
    data, encoding = encode(payload)
    return msgspec.structs.replace(job, payload=data, encoding=encoding)


def version_faults(version: object, upgrades: Mapping[int, Upgrade]) -> Iterator[Fault]:
    """Yield the faults of the version of a task and of its upgrades."""
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        yield Fault("version", "OUT_OF_RANGE", f"must be at least 1, got {version!r:.60}")
        return
    for step, upgrade in upgrades.items():
        if not 1 <= step < version or not callable(upgrade):
            message = f"must map versions 1 to {version - 1} to functions, got {step!r:.60}"
            yield Fault("upgrades", "INVALID", message)
