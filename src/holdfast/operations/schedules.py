"""Schedules: those of the code, and dynamic ones that are created and edited at run time."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Collection, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.model.acceptance import accept
from holdfast.model.results import SubmissionResult
from holdfast.model.submission import Submission
from holdfast.operations import schedule_records as records
from holdfast.operations.schedule_infos import code_info, dynamic_info
from holdfast.operations.schedule_inputs import (
    bounded,
    checked_name,
    checked_options,
    checked_payload,
    checked_text,
    missed_runs,
    new_plan,
)
from holdfast.operations.submitter import Submitter, named
from holdfast.operations.workers import workers
from holdfast.runtime.pace import Pace
from holdfast.store import Order, Search, Store
from holdfast.store.tenants import TenantStore
from holdfast.tasks.plans import with_plan
from holdfast.tasks.schedule import CronEntry, MissedRuns
from holdfast.tasks.schedule_values import (
    PublishedCron,
    ScheduleInfo,
    ScheduleRun,
    ScheduleSource,
    StoredPause,
    StoredSchedule,
)

LAST_RUNS = 10
MOST_PAGE = 1000
TAG = "cron"
"""The tag with the name of its schedule that each job of a schedule has."""


class Schedules:
    """The schedules of a store, or of one namespace."""

    def __init__(self, store: Store, submitter: Submitter) -> None:
        self._store = store
        self._submitter = submitter

    async def list(
        self, *, after: str = "", limit: int = 100, runs: int = LAST_RUNS
    ) -> builtins.list[ScheduleInfo]:
        """Return schedules by name, each with its next runs and its newest ``runs`` jobs.

        ``after`` continues behind a name. ``runs`` 0 saves a search for each schedule.
        """
        found = await self._page(after, bounded("limit", limit, 1, MOST_PAGE))
        return await self._complete(found, bounded("runs", runs, 0, LAST_RUNS))

    async def get(self, name: str) -> ScheduleInfo:
        """Return a schedule; NotFoundError when there is none."""
        (found,) = await self._complete([await self._known(name)], LAST_RUNS)
        return found

    async def create(
        self,
        name: str,
        type_: str,
        expression: str,
        *,
        tz: str = "UTC",
        payload: object = None,
        missed: MissedRuns | str = MissedRuns.ONE,
        paused: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> ScheduleInfo:
        """Submit jobs of a type at the times of a cron expression, from now on.

        There is exactly one job per tick. ``missed`` decides about ticks that passed while no
        worker ran: ``skip``, ``one`` or ``all``. ``options`` are options of ``submit``, such as
        ``queue`` and ``priority``. ValidationError names every wrong field.
        """
        now = self._store.now()
        made = StoredSchedule(
            type=checked_text("type", type_),
            missed=missed_runs(missed),
            plans=(new_plan(expression, tz, now, paused=paused),),
            payload=checked_payload(payload),
            options=checked_options(options or {}),
            created_at=now,
            changed_at=now,
            owner=self._owner,
        )
        await self._check(checked_name(name), made)
        records.must_be_new(await records.code(self._store, name) is None, name)
        await records.check_room(self._store, name, made)
        records.must_be_new(await records.write(self._store, name, made, 0), name)
        return await self.get(name)

    async def change(
        self,
        name: str,
        *,
        expression: str | None = None,
        tz: str | None = None,
        payload: object = UNSET,
        missed: MissedRuns | str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ScheduleInfo:
        """Change what is given of a dynamic schedule; ``options`` replace all options.

        A tick that has passed belongs to the old definition, later ones to the new one. The type
        stays: for another type, create another schedule.
        """
        await self._must_be_dynamic(name, "changed")
        now = self._store.now()

        def changed(before: StoredSchedule) -> StoredSchedule:
            newest = before.plans[-1]
            plan = new_plan(
                newest.expression if expression is None else expression,
                newest.tz if tz is None else tz,
                max(now, newest.since),
                paused=newest.paused,
            )
            same_time = (plan.expression, plan.tz) == (newest.expression, newest.tz)
            return replace(
                before,
                plans=before.plans if same_time else with_plan(before.plans, plan),
                payload=before.payload if payload is UNSET else checked_payload(payload),
                missed=before.missed if missed is None else missed_runs(missed),
                options=before.options if options is None else checked_options(options),
                changed_at=now,
                owner=self._owner,
            )

        before, _ = await records.read(self._store, StoredSchedule, name)
        if before is not None:
            await self._check(name, changed(before))
            await records.check_room(self._store, name, changed(before))
        await records.edit(self._store, name, changed)
        return await self.get(name)

    async def pause(self, name: str) -> ScheduleInfo:
        """Stop a schedule, also one of the code: it stays paused across restarts and deploys."""
        return await self._switch(name, paused=True)

    async def resume(self, name: str) -> ScheduleInfo:
        """Start a paused schedule again; instants that passed meanwhile are not made up for."""
        return await self._switch(name, paused=False)

    async def run(self, name: str) -> SubmissionResult:
        """Submit a job of a schedule now, beside its ticks, also while it is paused."""
        declared = await records.code(self._store, name)
        if declared is not None:
            return await self._submitter.submit(submission_of(_runnable(name, declared)))
        schedule, _ = await records.read(self._store, StoredSchedule, name)
        if schedule is None:
            raise NotFoundError(name, "schedule")
        return await self._submitter.submit(submission_of(schedule.entry(name)))

    async def delete(self, name: str) -> None:
        """Delete a dynamic schedule; the jobs that it made stay."""
        await self._must_be_dynamic(name, "deleted")
        await records.remove(self._store, name)

    @property
    def _owner(self) -> str:
        """The API key that acts; empty for a program with the store."""
        return self._store.owner if isinstance(self._store, TenantStore) else ""

    async def _switch(self, name: str, *, paused: bool) -> ScheduleInfo:
        known = await self._known(name)
        if known.source is ScheduleSource.CODE:
            await records.pause_code(self._store, name, paused=paused)
        else:
            now = self._store.now()
            await records.edit(
                self._store, name, lambda each: records.paused_as(each, paused=paused, now=now)
            )
        return await self.get(name)

    async def _known(self, name: str) -> ScheduleInfo:
        """Return a schedule without its runs; NotFoundError when none can be read."""
        now, declared = self._store.now(), await records.code(self._store, name)
        if declared is not None:
            pause, _ = await records.read(self._store, StoredPause, name)
            return code_info(name, declared, pause, now)
        schedule, _ = await records.read(self._store, StoredSchedule, name)
        if schedule is None:
            raise NotFoundError(name, "schedule")
        return dynamic_info(name, schedule, now)

    async def _must_be_dynamic(self, name: str, action: str) -> None:
        if await records.code(self._store, name) is not None:
            message = f"{name!r:.130} is a schedule of the code and cannot be {action}"
            raise ValidationError([Fault("name", "NOT_DYNAMIC", message)])

    async def _page(self, after: str, limit: int) -> builtins.list[ScheduleInfo]:
        """Schedules without their runs; one of the code hides a dynamic one of its name.

        Other tasks run in between: to find the next instants can take milliseconds for each.
        """
        now, pace = self._store.now(), Pace()
        dynamic = await records.stored(self._store, StoredSchedule)
        declared = await records.declared_crons(self._store)
        pauses = await records.stored(self._store, StoredPause)
        found: builtins.list[ScheduleInfo] = []
        for name in sorted(name for name in {*dynamic, *declared} if name > after):
            await pace.turn()
            # A damaged one is left out; the leader sets it aside.
            with contextlib.suppress(ValueError, ValidationError):
                if name in declared:
                    found.append(code_info(name, declared[name], pauses.get(name), now))
                else:
                    found.append(dynamic_info(name, dynamic[name], now))
            if len(found) == limit:
                break
        return found

    async def _complete(
        self, found: Collection[ScheduleInfo], runs: int
    ) -> builtins.list[ScheduleInfo]:
        served = {type_ for worker in await workers(self._store) for type_ in worker.types}
        return [
            replace(
                each,
                served=each.type in served,
                last_runs=await self._runs(each, runs) if runs else (),
            )
            for each in found
        ]

    async def _runs(self, schedule: ScheduleInfo, count: int) -> tuple[ScheduleRun, ...]:
        search = Search(
            tags={TAG: schedule.name}, order=Order.CREATED_DESC, limit=count, most_bytes=0
        )
        return tuple(
            ScheduleRun(
                job_id=job.id,
                state=job.state,
                created_at=job.created_at,
                finished_at=job.finished_at,
            )
            for job in (await self._store.find(search)).jobs
        )

    async def _check(self, name: str, schedule: StoredSchedule) -> None:
        """Check what the schedule will submit, as if it were submitted now."""
        (given,) = await self._submitter.screened([submission_of(schedule.entry(name))])
        if given.faults:
            raise ValidationError(given.faults)
        key = named(given)
        defaults = (await self._submitter.declarations.read([key]))[key]
        job = accept(given, job_id="", now=self._store.now(), defaults=defaults)
        admission = self._submitter.admission
        admission.checked(job)
        await admission.admit_names(queue=job.queue, tags=list(job.tags), type_=job.type)


def submission_of(entry: CronEntry, **more: object) -> Submission:
    """Return what a schedule submits; ``more`` are further fields."""
    tags = {**(entry.options.get("tags") or {}), TAG: entry.name}
    options = {**entry.options, **more, "tags": tags}
    return Submission(type=entry.type, payload=entry.payload, **options)  # type: ignore[arg-type]


def _runnable(name: str, declared: PublishedCron) -> CronEntry:
    if not declared.runnable:
        message = f"{name!r:.130} runs at its ticks only: its payload has no JSON form"
        raise ValidationError([Fault("name", "NOT_RUNNABLE", message)])
    return declared.entry(name)
