"""The judgement at the end: files outside the queue against everything the store recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.model.job import LIVE, Event, Job, Priority, Transition
from holdfast.store import Store
from holdfast.torture.faults import Chaos
from holdfast.torture.ledger import ACCEPTED, CANCEL, DUPLICATE, read
from holdfast.torture.plan import LINE, TICK, TorturePlan
from holdfast.torture.proxy import Proxy
from holdfast.torture.report import Outcome, Recovery
from holdfast.torture.watch import Watch
from holdfast.verify import CLOCK_SLACK, Witness, verify

LOOKING = timedelta(seconds=2)
"""How old the last look may be at which every job had ended: the schedule goes on meanwhile."""

FEW_JOBS = 10_000
MANY_JOBS = 50_000
MANY_KILLS = 500
FEW_FAULTS = 10
FEW_PAUSES = 20


class Judge:
    """Collects the evidence of a run and says what it amounts to."""

    def __init__(
        self, plan: TorturePlan, folder: str, chaos: Chaos, watch: Watch, proxy: Proxy | None
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._chaos = chaos
        self._watch = watch
        self._proxy = proxy
        self.ready: list[float] = []
        self.recovered: list[float] = []
        self.alive: list[tuple[Job, str]] = []
        self._ticks = 0

    async def outcome(
        self, store: Store, *, schedule_since: datetime, drained: datetime, seconds: float
    ) -> Outcome:
        """Judge every job."""
        witness, told = self._witness()
        report = await verify(store, witness, on_job=self.hear, order_slack=CLOCK_SLACK)
        happened = {
            **self._happened(told, report.events),
            "jobs judged by their order": report.ordered,
        }
        violations: dict[str, int] = dict(report.counts)
        unfinished = [told for job, told in self.alive if job.created_at < drained - LOOKING]
        violations["not ended"] = len(unfinished)
        violations["unreadable"] = report.moving
        violations["cron instants"] = self._missed_ticks(schedule_since, drained, store.now())
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
        witness, told = Witness(), Counter[str]()
        for kind, *words in read(self._folder, "told"):
            told[" ".join([kind, *words[1:]])] += 1
            if kind in (ACCEPTED, DUPLICATE):
                witness.accepted.add(words[0])
            elif kind == CANCEL and words[1] == "CANCELLED":
                witness.cancelled.add(words[0])
        for job_id, version in read(self._folder, "effects"):
            witness.effect(job_id, int(version))
        told.update(event for (event,) in read(self._folder, "heard"))
        return witness, told

    def hear(self, job: Job, history: Sequence[Transition]) -> None:
        """Look at one job: how long its worker's death kept it waiting."""
        self._ticks += job.type == TICK
        if job.state in LIVE:
            self.alive.append((job, _told(job, history)))
        if job.queue != LINE:  # where nobody else is there to take over
            self._measure(job, history)

    def _measure(self, job: Job, history: Sequence[Transition]) -> None:
        died: datetime | None = None
        for edge in history:
            if edge.event is Event.LAPSE:
                died = self._chaos.deaths.get(edge.worker, edge.at)
                died = died if died < edge.at else None  # it was stopped, and killed later
            elif died is not None and edge.event is Event.DUE:
                self.ready.append(self._since(died, edge.at))
            elif died is not None and edge.event is Event.CLAIM:
                if job.priority <= Priority.NORMAL:  # lower ones wait for a gap in the others
                    self.recovered.append(self._since(died, edge.at))
                died = None

    def _since(self, died: datetime, moment: datetime) -> float:
        """Seconds from a worker's death, not counting those in which the store was away."""
        waited = (moment - died).total_seconds() - self._watch.lost(died, moment)
        return max(0.0, waited)

    def _missed_ticks(self, since: datetime, drained: datetime, now: datetime) -> int:
        """By how many the ticks miss what the schedule says, one for each minute."""
        least = (_minute(drained - timedelta(seconds=10))) - _minute(since)
        most = _minute(now) - _minute(since)
        return max(0, least - self._ticks, self._ticks - most)

    def _happened(self, told: Mapping[str, int], events: Mapping[str, int]) -> dict[str, int]:
        counts = self._chaos.counts
        late = told.get("job.stale", 0) + told.get("job.lease_lost", 0)
        return {
            "kills": counts["kills"],
            "supervised kills": counts["supervised kills"],
            "producer kills": counts["producer kills"],
            "pauses": counts["pauses"],
            "server crashes": counts["crashes"],
            "lines cut before the request": self._proxy.cut_before if self._proxy else 0,
            "lines cut before the reply": self._proxy.cut_after if self._proxy else 0,
            "late answers": late + events.get(Event.RESUME, 0),
            "leases lapsed": events.get(Event.LAPSE, 0),
            "jobs given back": events.get(Event.GIVE_BACK, 0),
            "retries": events.get(Event.RETRY, 0),
            "dead letters": events.get(Event.EXHAUST, 0),
            "failures": events.get(Event.FAIL, 0),
            "inherited ends": events.get(Event.INHERIT, 0),
            "duplicates by key": told.get(DUPLICATE, 0),
            "cancelled": told.get(f"{CANCEL} CANCELLED", 0),
            "cancelled while running": told.get(f"{CANCEL} CANCEL_REQUESTED", 0),
            "cancelled too late": told.get(f"{CANCEL} ALREADY_COMPLETE", 0),
            "ticks of a schedule": self._ticks,
            "recoveries measured": len(self.recovered),
        }

    def _required(self, happened: Mapping[str, int]) -> list[str]:
        """Everything, except what was not planned or is left to chance in a small run."""
        plan, lines = self._plan, self._proxy is not None
        planned = {
            "kills": plan.kills,
            "supervised kills": plan.supervised and plan.kills >= FEW_FAULTS,
            "producer kills": plan.kills >= FEW_FAULTS,
            "pauses": plan.pauses,
            "server crashes": self._chaos.crashes_planned,
            "lines cut before the request": lines and plan.cuts >= FEW_FAULTS,
            "lines cut before the reply": lines and plan.cuts >= FEW_FAULTS,
            "late answers": plan.pauses >= FEW_PAUSES,
            "leases lapsed": plan.kills >= FEW_FAULTS,
            "recoveries measured": plan.kills >= FEW_FAULTS,
            "cancelled while running": plan.jobs >= MANY_JOBS,  # a matter of milliseconds
            "jobs given back": plan.kills >= MANY_KILLS,  # those whose workers died twice
        }
        return [name for name in happened if planned.get(name, plan.jobs >= FEW_JOBS)]


def _told(job: Job, history: Sequence[Transition]) -> str:
    edges = ", ".join(f"{edge.event} {edge.at:%H:%M:%S.%f} {edge.worker}" for edge in history)
    return f"not ended: {job.id} ({job.type}, due {job.due_at}) is {job.state}: {edges}"


def _minute(moment: datetime) -> int:
    return int(moment.timestamp() // 60)
