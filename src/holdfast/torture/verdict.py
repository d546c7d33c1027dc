"""Evaluates a run: compares the files outside the queue with everything the store recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.model.job import LIVE, Event, Job, Priority, Transition
from holdfast.store import Store
from holdfast.torture.faults import FaultInjector
from holdfast.torture.ledger import ACCEPTED, CANCEL, DUPLICATE, EFFECTS, EVENTS, RESPONSES, read
from holdfast.torture.plan import CRON_TASK, ORDERED_QUEUE, TorturePlan
from holdfast.torture.proxy import Proxy
from holdfast.torture.report import Outcome, Recovery
from holdfast.torture.watch import StoreMonitor
from holdfast.verify import CLOCK_SLACK, Witness, verify

MONITOR_LAG = timedelta(seconds=2)
"""How old the read may be that saw every job ended: the cron schedule continues meanwhile."""

FEW_JOBS = 10_000
MANY_JOBS = 50_000
MANY_KILLS = 500
FEW_FAULTS = 10
FEW_PAUSES = 20


class Evaluator:
    """Collects what a run left behind and computes its outcome."""

    def __init__(
        self,
        plan: TorturePlan,
        folder: str,
        faults: FaultInjector,
        monitor: StoreMonitor,
        proxy: Proxy | None,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._faults = faults
        self._monitor = monitor
        self._proxy = proxy
        self.ready: list[float] = []
        self.recovered: list[float] = []
        self.unfinished: list[tuple[Job, str]] = []
        self._cron_jobs = 0

    async def outcome(
        self, store: Store, *, schedule_since: datetime, drained: datetime, seconds: float
    ) -> Outcome:
        """Check every job and return the outcome."""
        witness, counts = self._witness()
        report = await verify(store, witness, on_job=self.add, order_slack=CLOCK_SLACK)
        happened = {
            **self._happened(counts, report.events),
            "jobs judged by their order": report.ordered,
        }
        violations: dict[str, int] = dict(report.counts)
        unfinished = [
            text for job, text in self.unfinished if job.created_at < drained - MONITOR_LAG
        ]
        supervised = counts["process.died"] - self._faults.counts["supervised kills"]
        violations["died by themselves"] = self._faults.deaths + max(0, supervised)
        violations["not ended"] = len(unfinished)
        violations["unreadable"] = report.moving
        violations["cron instants"] = self._cron_errors(schedule_since, drained, store.now())
        return Outcome(
            plan=self._plan,
            jobs=report.jobs,
            seconds=round(seconds, 1),
            violations=violations,
            happened=happened,
            required=self._required(happened),
            findings=[
                *(str(finding) for finding in report.findings),
                *unfinished,
            ],
            effects=witness.effects,
            repeated=witness.repeated,
            ready=Recovery.of(self.ready),
            recovery=Recovery.of(self.recovered),
        )

    def _witness(self) -> tuple[Witness, Counter[str]]:
        witness, counts = Witness(), Counter[str]()
        for kind, *words in read(self._folder, RESPONSES):
            counts[" ".join([kind, *words[1:]])] += 1
            if kind in (ACCEPTED, DUPLICATE):
                witness.accepted.add(words[0])
            elif kind == CANCEL and words[1] == "CANCELLED":
                witness.cancelled.add(words[0])
        for job_id, version in read(self._folder, EFFECTS):
            witness.effect(job_id, int(version))
        counts.update(event for (event,) in read(self._folder, EVENTS))
        return witness, counts

    def add(self, job: Job, history: Sequence[Transition]) -> None:
        """Record one job, and how long it waited after its worker was killed."""
        self._cron_jobs += job.type == CRON_TASK
        if job.state in LIVE:
            self.unfinished.append((job, _described(job, history)))
        if job.queue != ORDERED_QUEUE:  # it has no second worker to take over
            self._measure(job, history)

    def _measure(self, job: Job, history: Sequence[Transition]) -> None:
        killed_at: datetime | None = None
        for edge in history:
            if edge.event is Event.LAPSE:
                killed_at = self._faults.killed_at.get(edge.worker, edge.at)
                if killed_at >= edge.at:  # the worker was paused, and killed later
                    killed_at = None
            elif killed_at is not None and edge.event is Event.DUE:
                self.ready.append(self._since(killed_at, edge.at))
            elif killed_at is not None and edge.event is Event.CLAIM:
                if job.priority <= Priority.NORMAL:  # lower priorities wait for a gap
                    self.recovered.append(self._since(killed_at, edge.at))
                killed_at = None

    def _since(self, killed_at: datetime, moment: datetime) -> float:
        """Return the seconds since a worker was killed, without the outages of the store."""
        outage = self._monitor.outage_seconds(killed_at, moment)
        return max(0.0, (moment - killed_at).total_seconds() - outage)

    def _cron_errors(self, since: datetime, drained: datetime, now: datetime) -> int:
        """Return by how many jobs the run differs from the schedule of one per minute."""
        least = (_minute(drained - timedelta(seconds=10))) - _minute(since)
        most = _minute(now) - _minute(since)
        return max(0, least - self._cron_jobs, self._cron_jobs - most)

    def _happened(self, counts: Mapping[str, int], events: Mapping[str, int]) -> dict[str, int]:
        faults = self._faults.counts
        late = counts.get("job.stale", 0) + counts.get("job.lease_lost", 0)
        return {
            "kills": faults["kills"],
            "supervised kills": faults["supervised kills"],
            "producer kills": faults["producer kills"],
            "pauses": faults["pauses"],
            "server crashes": faults["crashes"],
            "lines cut before the request": self._proxy.cut_before if self._proxy else 0,
            "lines cut before the reply": self._proxy.cut_after if self._proxy else 0,
            "idle lines reset": self._proxy.reset if self._proxy else 0,
            "late answers": late + events.get(Event.RESUME, 0),
            "leases lapsed": events.get(Event.LAPSE, 0),
            "jobs given back": events.get(Event.GIVE_BACK, 0),
            "retries": events.get(Event.RETRY, 0),
            "dead letters": events.get(Event.EXHAUST, 0),
            "failures": events.get(Event.FAIL, 0),
            "inherited ends": events.get(Event.INHERIT, 0),
            "duplicates by key": counts.get(DUPLICATE, 0),
            "cancelled": counts.get(f"{CANCEL} CANCELLED", 0),
            "cancelled while running": counts.get(f"{CANCEL} CANCEL_REQUESTED", 0),
            "cancelled too late": counts.get(f"{CANCEL} ALREADY_COMPLETE", 0),
            "ticks of a schedule": self._cron_jobs,
            "recoveries measured": len(self.recovered),
        }

    def _required(self, happened: Mapping[str, int]) -> list[str]:
        """Return all counters, except those that a small run need not have."""
        plan, proxied = self._plan, self._proxy is not None
        planned = {
            "kills": plan.kills,
            "supervised kills": plan.supervised and plan.kills >= FEW_FAULTS,
            "producer kills": plan.kills >= FEW_FAULTS,
            "pauses": plan.pauses,
            "server crashes": self._faults.crashes_planned,
            "lines cut before the request": proxied and plan.cuts >= FEW_FAULTS,
            "lines cut before the reply": proxied and plan.cuts >= FEW_FAULTS,
            "idle lines reset": proxied and plan.cuts >= FEW_FAULTS,
            "late answers": plan.pauses >= FEW_PAUSES,
            "leases lapsed": plan.kills >= FEW_FAULTS,
            "recoveries measured": plan.kills >= FEW_FAULTS,
            "cancelled while running": plan.jobs >= MANY_JOBS,  # a window of milliseconds
            "jobs given back": plan.kills >= MANY_KILLS,  # needs two dead workers for one job
        }
        return [name for name in happened if planned.get(name, plan.jobs >= FEW_JOBS)]


def _described(job: Job, history: Sequence[Transition]) -> str:
    edges = ", ".join(f"{edge.event} {edge.at:%H:%M:%S.%f} {edge.worker}" for edge in history)
    return f"not ended: {job.id} ({job.type}, due {job.due_at}) is {job.state}: {edges}"


def _minute(moment: datetime) -> int:
    return int(moment.timestamp() // 60)
