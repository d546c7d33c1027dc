"""The nine states as people see them: a word, one of five colours, and a shape of its own."""

from __future__ import annotations

import msgspec

from holdfast.model.job import State


class StateLook(msgspec.Struct, frozen=True):
    """How a state is shown."""

    state: State
    label: str
    tone: str
    """One of five colours: idle, active, caution, good, bad."""
    meaning: str

    @property
    def slug(self) -> str:
        """The name in style sheets and searches."""
        return self.state.value.lower().replace("_", "-")


STATES: dict[str, StateLook] = {
    look.state.value: look
    for look in (
        StateLook(State.PENDING, "Waiting", "idle", "waits for other jobs, or is held"),
        StateLook(State.DELAYED, "Delayed", "idle", "waits for its time"),
        StateLook(State.SCHEDULED, "Ready", "active", "ready to run: a worker may claim it"),
        StateLook(State.RUNNING, "Running", "active", "a worker runs it"),
        StateLook(State.RETRYING, "Retrying", "caution", "waits for its next attempt"),
        StateLook(State.COMPLETED, "Completed", "good", "ended well"),
        StateLook(State.FAILED, "Failed", "bad", "failed in a way that is not retried"),
        StateLook(State.DEAD_LETTER, "Dead letter", "bad", "used up its attempts or lifetime"),
        StateLook(State.CANCELLED, "Cancelled", "idle", "was cancelled"),
    )
}
