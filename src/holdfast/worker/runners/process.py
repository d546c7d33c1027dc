"""Functions in processes of their own."""

from __future__ import annotations

from holdfast.app import Holdfast
from holdfast.observe import Observer
from holdfast.worker.execution import Outcome, system_failure
from holdfast.worker.run import Run


class ProcessRunner:
    """To be replaced."""

    def __init__(self, app: Holdfast, observer: Observer) -> None:
        self._observer = observer

    async def run(self, run: Run) -> Outcome:
        return system_failure("no process runner", "NO_RUNNER")

    async def close(self) -> None:
        pass
