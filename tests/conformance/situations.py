"""Every kind of job: a table of labels, fields and what happened to each.

Times are seconds before the deadline, at which every lease, delay, lifetime, key window and
rate window that ends here ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBMITTED = -600
QUEUES = ("main", "side", "paused", "aged", "narrow", "keyed", "rated")


@dataclass(frozen=True)
class Situation:
    """A job and what happens to it, in seconds before the deadline."""

    label: str
    steps: tuple[tuple[int, str], ...] = ()
    submitted: int = SUBMITTED
    after: tuple[str, ...] = ()
    spawned_by: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def _that(
    label: str,
    *steps: tuple[int, str],
    at: int = SUBMITTED,
    after: Sequence[str] = (),
    spawned_by: str = "",
    **fields: Any,
) -> Situation:
    fields.setdefault("queue", "main")
    return Situation(label, steps, at, tuple(after), spawned_by, fields)


AT_ONCE = {"initial_delay": 0}
LONG = 3600

SITUATIONS = (
    # ready
    _that("ready"),
    _that("ready.low", priority="LOW"),
    _that("ready.critical", priority="CRITICAL"),
    _that("ready.next"),
    _that("ready.side", queue="side", tags={"colour": "red"}, correlation_id="c1"),
    _that("ready.dying", lifetime=-SUBMITTED),
    _that("ready.returned", (-100, "claim"), (-90, "give_back")),
    _that("ready.reopened", (-100, "claim"), (-90, "refuse"), (-80, "reopen")),
    _that("ready.retried", (-200, "claim"), (-190, "fail"), backoff=AT_ONCE),
    _that("ready.lapsed", (-200, "claim"), (-170, "lapse")),
    _that("ready.paused", queue="paused"),
    _that("ready.aged", queue="aged", priority="LOW", at=-100),
    _that("ready.aged.twice", queue="aged", priority="BULK", at=-200),
    _that("ready.aged.fresh", queue="aged", priority="NORMAL", at=-1),
    # waiting for a time
    _that("delayed", delay=-SUBMITTED),
    _that("delayed.urgent", delay=-SUBMITTED, priority="HIGH"),
    _that("delayed.long", delay=LONG),
    _that("delayed.overdue", delay=-SUBMITTED - 20),
    _that("delayed.dying", delay=-SUBMITTED, lifetime=-SUBMITTED),
    _that("delayed.reopened", (-100, "claim"), (-90, "refuse"), (-80, "reopen_later")),
    # held
    _that("held", hold=True),
    _that("held.delayed", hold=True, delay=-SUBMITTED),
    _that("held.dependent", hold=True, after=["done"], at=-50),
    _that("held.dying", hold=True, lifetime=-SUBMITTED),
    # running
    _that("running", (-10, "claim")),
    _that("running.ending", (-30, "claim")),
    _that("running.ended", (-40, "claim")),
    _that("running.renewed", (-40, "claim"), (-30, "extend")),
    _that("running.dying", (-10, "claim"), lifetime=-SUBMITTED),
    _that("running.last", (-30, "claim"), max_attempts=1),
    _that("running.again", (-200, "claim"), (-190, "fail"), (-30, "claim"), backoff=AT_ONCE),
    _that("running.retaken", (-200, "claim"), (-170, "lapse"), (-30, "claim")),
    _that("running.reopened", (-100, "claim"), (-90, "refuse"), (-80, "reopen"), (-30, "claim")),
    _that("running.unwanted", (-30, "claim"), (-20, "cancel")),
    _that("running.forced", (-30, "claim"), (-20, "cancel"), (-15, "cancel_by_force")),
    _that("running.noted", (-30, "claim"), (-20, "note"), (-10, "note")),
    _that("running.side", (-30, "claim"), queue="side", max_attempts=2),
    _that("running.impatient", (-30, "claim"), retry_timeouts=False),
    _that("running.fragile", (-30, "claim"), retry_crashes=False),
    # waiting for another attempt
    _that("retrying", (-20, "claim"), (-10, "fail"), backoff={"initial_delay": 10}),
    _that("retrying.later", (-20, "claim"), (-10, "fail"), backoff={"initial_delay": 99}),
    _that("retrying.busy", (-20, "claim"), (-10, "fail_busy")),
    _that("retrying.lapsed", (-31, "claim"), (-1, "lapse_slowly")),
    _that("retrying.noted", (-30, "claim"), (-20, "note"), (-10, "fail"), backoff=AT_ONCE),
    # ended
    _that("done", (-110, "claim"), (-100, "complete")),
    _that("done.empty", (-110, "claim"), (-100, "complete_empty")),
    _that("done.late", (-160, "claim"), (-130, "lapse"), (-100, "answer_late")),
    _that("done.retried", (-200, "claim"), (-190, "fail"), (-20, "claim"), (-10, "complete"),
          backoff=AT_ONCE),
    _that("failed", (-110, "claim"), (-100, "refuse")),
    _that("failed.noted", (-110, "claim"), (-105, "note"), (-50, "refuse")),
    _that("failed.lapsed", (-140, "claim"), (-100, "lapse"), retry_crashes=False),
    _that("dead", (-110, "claim"), (-100, "fail"), max_attempts=1),
    _that("dead.lapsed", (-140, "claim"), (-100, "lapse"), max_attempts=1),
    _that("dead.expired", (-100, "expire"), lifetime=-SUBMITTED - 100),
    _that("cancelled", (-100, "cancel")),
    _that("cancelled.running", (-110, "claim"), (-105, "cancel"), (-100, "fail")),
    _that("inherited.failed", (-90, "inherit_failed"), after=["failed"], at=-300),
    _that("inherited.dead", (-90, "inherit_dead"), after=["dead"], at=-300),
    _that("inherited.cancelled", (-90, "inherit_cancelled"), after=["cancelled"], at=-300),
    _that("again.failed", (-90, "inherit_failed"), (-80, "reopen"), after=["failed"], at=-300),
    _that("again.dead", (-90, "inherit_dead"), (-80, "reopen_later"), after=["dead"], at=-300),
    # waiting for others
    _that("parent", (-30, "claim")),
    _that("parent.ready"),
    _that("after", after=["parent"]),
    _that("after.two", after=["parent", "parent.ready"]),
    _that("after.done", after=["done"], at=-300),
    _that("after.done.late", after=["done"], at=-50),
    _that("after.mixed", after=["done", "parent"], at=-50),
    _that("after.failed", after=["parent", "failed"], at=-300),
    _that("after.dead", after=["dead"], at=-50),
    _that("after.dead.mixed", after=["parent", "dead"], at=-50),
    _that("after.cancelled.mixed", after=["cancelled", "parent"], at=-50),
    _that("any.mixed", after=["parent", "done"], dependency_type="AFTER_ANY", at=-50),
    _that("after.cancelled", after=["cancelled"], at=-300),
    _that("after.delayed", after=["done"], delay=300, at=-300),
    _that("after.dying", after=["parent"], lifetime=-SUBMITTED),
    _that("any", after=["parent", "parent.ready"], dependency_type="AFTER_ANY"),
    _that("any.ended", after=["parent", "failed"], dependency_type="AFTER_ANY", at=-300),
    _that("all", after=["parent", "done"], dependency_type="AFTER_ALL", at=-50),
    _that("all.failed", after=["parent", "failed"], dependency_type="AFTER_ALL", at=-300),
    _that("all.ended", after=["done", "failed"], dependency_type="AFTER_ALL", at=-300),
    _that("chain", after=["parent"], dependency_type="CHAIN", priority="BULK"),
    _that("chain.deep", after=["chain"], dependency_type="CHAIN"),
    _that("spawner", (-95, "claim"), lease=LONG),
    _that("spawner.done", (-110, "claim"), (-50, "complete")),
    _that("fan_in", after=["spawner"], dependency_type="FAN_IN"),
    _that("spawned", spawned_by="spawner", at=-90),
    _that("spawned.delayed", spawned_by="spawner", delay=90, at=-90),
    _that("spawned.done", (-65, "claim"), (-60, "complete"), spawned_by="spawner.done", at=-105),
    _that("fan_in.late", after=["spawner"], dependency_type="FAN_IN", at=-50),
    _that("fan_in.ended", after=["spawner.done"], dependency_type="FAN_IN"),
    _that("fan_in.after", after=["spawner.done"], dependency_type="FAN_IN", at=-20),
    # keys
    _that("keyed", idempotency_key="k.live", idempotency_window=-SUBMITTED),
    _that("keyed.long", idempotency_key="k.long", idempotency_window=LONG),
    _that("keyed.done", (-110, "claim"), (-100, "complete"), idempotency_key="k.done",
          idempotency_window=-SUBMITTED),
    # limits
    _that("narrow.running", (-10, "claim"), queue="narrow"),
    _that("narrow.waiting", queue="narrow"),
    _that("keyed.running", (-10, "claim"), queue="keyed", type="keyed.work", limit_key="a"),
    _that("keyed.waiting", queue="keyed", type="keyed.work", limit_key="a"),
    _that("keyed.other", queue="keyed", type="keyed.work", limit_key="b"),
    _that("keyed.free", queue="keyed", type="keyed.work"),
    _that("rated.running", (-20, "claim"), queue="rated"),
    _that("rated.done", (-20, "claim"), (-10, "complete"), queue="rated"),
    _that("rated.waiting", queue="rated"),
)  # fmt: skip
