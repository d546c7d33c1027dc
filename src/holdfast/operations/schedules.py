"""Schedules: those of the code, and dynamic ones that are created and edited at run time."""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import islice

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from holdfast.errors import Fault, NotFoundError, QuotaError, ValidationError
from holdfast.model.acceptance import FIELDS, accept
from holdfast.model.payload import PayloadError, encode
from holdfast.model.reserved import RESERVED, refusal
from holdfast.model.results import SubmissionResult
from holdfast.model.submission import Submission
from holdfast.model.times import shown
from holdfast.operations import schedule_records as records
from holdfast.operations.submitter import Submitter, named
from holdfast.operations.workers import workers
from holdfast.store import Order, Search, Store
from holdfast.tasks.plans import Plan, upcoming, with_plan
from holdfast.tasks.schedule import CronEntry, MissedRuns, cron_entry, in_words
from holdfast.tasks.schedule_values import (
    PublishedCron,
    ScheduleInfo,
    ScheduleRun,
    ScheduleSource,
    StoredPause,
    StoredSchedule,
)

NAME_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
MOST_SCHEDULES = 1000
"""Dynamic schedules of one namespace."""
MOST_PAYLOAD = 65_536
"""Bytes of the payload of a schedule."""
NEXT_RUNS = 3
LAST_RUNS = 10
MOST_PAGE = 1000
TAG = "cron"
"""The tag with the name of its schedule that each job of a schedule has."""
OPTIONS = frozenset(
    {
        "queue",
        "priority",
        "timeout",
        "lifetime",
        "max_attempts",
        "backoff",
        "correlation_id",
        "tags",
        "headers",
        "callback_url",
        "limit_key",
    }
)
"""The options of a submission that a schedule may have."""


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
        found = await self._all()
        names = sorted(name for name in found if name > after)
        shown_ = [found[name] for name in names[: _bounded("limit", limit, 1, MOST_PAGE)]]
        return await self._complete(shown_, _bounded("runs", runs, 0, LAST_RUNS))

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
            type=_text("type", type_),
            missed=_missed(missed),
            plans=(_plan(expression, tz, now, paused=paused),),
            payload=_payload(payload),
            options=_options(options or {}),
            created_at=now,
            changed_at=now,
        )
        await self._check(_name(name), made)
        there = await self._all()
        records.must_be_new(name not in there, name)
        dynamic = sum(each.source is ScheduleSource.DYNAMIC for each in there.values())
        if dynamic >= MOST_SCHEDULES:
            limit = "schedules of this namespace"
            raise QuotaError(limit, current=dynamic, maximum=MOST_SCHEDULES)
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
            plan = _plan(
                newest.expression if expression is None else expression,
                newest.tz if tz is None else tz,
                max(now, newest.since),
                paused=newest.paused,
            )
            same_time = (plan.expression, plan.tz) == (newest.expression, newest.tz)
            return replace(
                before,
                plans=before.plans if same_time else with_plan(before.plans, plan),
                payload=before.payload if payload is UNSET else _payload(payload),
                missed=before.missed if missed is None else _missed(missed),
                options=before.options if options is None else _options(options),
                changed_at=now,
            )

        before, _ = await records.read(self._store, StoredSchedule, name)
        if before is not None:
            await self._check(name, changed(before))
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
        await self._known(name)
        declared = (await records.declared_crons(self._store)).get(name)
        if declared is not None:
            return await self._submitter.submit(submission_of(_runnable(name, declared)))
        schedule, _ = await records.read(self._store, StoredSchedule, name)
        if schedule is None:
            raise NotFoundError(name)
        return await self._submitter.submit(submission_of(schedule.entry(name)))

    async def delete(self, name: str) -> None:
        """Delete a dynamic schedule; the jobs that it made stay."""
        await self._must_be_dynamic(name, "deleted")
        await records.remove(self._store, name)

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
        found = (await self._all()).get(name)
        if found is None:
            raise NotFoundError(name)
        return found

    async def _must_be_dynamic(self, name: str, action: str) -> None:
        if (await self._known(name)).source is not ScheduleSource.DYNAMIC:
            message = f"{name!r:.130} is a schedule of the code and cannot be {action}"
            raise ValidationError([Fault("name", "NOT_DYNAMIC", message)])

    async def _all(self) -> dict[str, ScheduleInfo]:
        """Every schedule without its runs; one of the code hides a dynamic one of its name."""
        now = self._store.now()
        dynamic = await records.stored(self._store, StoredSchedule)
        pauses = await records.stored(self._store, StoredPause)
        found = {name: _dynamic(name, each, now) for name, each in dynamic.items()}
        for name, each in (await records.declared_crons(self._store)).items():
            found[name] = _of_code(name, each, pauses.get(name), now)
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
        await admission.admit_names(queue=job.queue, tags=list(job.tags))


def submission_of(entry: CronEntry, **more: object) -> Submission:
    """Return what a schedule submits; ``more`` are further fields."""
    tags = {**(entry.options.get("tags") or {}), TAG: entry.name}
    options = {**entry.options, **more, "tags": tags}
    return Submission(type=entry.type, payload=entry.payload, **options)  # type: ignore[arg-type]


def _dynamic(name: str, stored: StoredSchedule, now: datetime) -> ScheduleInfo:
    entry, newest = stored.entry(name), stored.plans[-1]
    queue = stored.options.get("queue")
    return ScheduleInfo(
        name=name,
        source=ScheduleSource.DYNAMIC,
        type=stored.type,
        queue=queue if isinstance(queue, str) else None,
        expression=newest.expression,
        words=in_words(entry),
        tz=newest.tz,
        missed=stored.missed,
        paused=newest.paused,
        next_runs=tuple(islice(upcoming(entry, stored.plans, after=now), NEXT_RUNS)),
        payload=msgspec.json.decode(stored.payload),
        options=stored.options,
        created_at=stored.created_at,
        changed_at=stored.changed_at,
    )


def _of_code(
    name: str, declared: PublishedCron, pause: StoredPause | None, now: datetime
) -> ScheduleInfo:
    plans = pause.plans if pause else (records.ALWAYS,)
    entry, queue = declared.entry(name), declared.options.get("queue")
    return ScheduleInfo(
        name=name,
        source=ScheduleSource.CODE,
        type=declared.type,
        queue=queue if isinstance(queue, str) else None,
        expression=declared.expression,
        words=in_words(entry),
        tz=declared.tz,
        missed=declared.missed,
        paused=plans[-1].paused,
        next_runs=tuple(islice(upcoming(entry, plans, after=now), NEXT_RUNS)),
    )


def _runnable(name: str, declared: PublishedCron) -> CronEntry:
    if not declared.runnable:
        message = f"{name!r:.130} runs at its ticks only: its payload has no JSON form"
        raise ValidationError([Fault("name", "NOT_RUNNABLE", message)])
    return declared.entry(name)


def _name(name: object) -> str:
    if not isinstance(name, str) or not NAME_RULE.fullmatch(name):
        message = f"must match {NAME_RULE.pattern}, got {shown(name)}"
        raise ValidationError([Fault("name", "INVALID", message)])
    return name


def _plan(expression: object, tz: object, since: datetime, *, paused: bool) -> Plan:
    expression, tz = _text("expression", expression), _text("tz", tz)
    entry = cron_entry("", "", expression, tz, MissedRuns.ONE, None, {})
    return Plan(since=since, paused=paused, expression=entry.expression, tz=entry.tz)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValidationError([Fault(field, "INVALID", f"must be a text, got {shown(value)}")])
    return value


def _missed(missed: object) -> MissedRuns:
    try:
        return MissedRuns(str(missed))
    except ValueError:
        choices = ", ".join(MissedRuns)
        message = f"must be one of {choices}, got {shown(missed)}"
        raise ValidationError([Fault("missed", "INVALID", message)]) from None


def _payload(payload: object) -> msgspec.Raw:
    if isinstance(payload, bytes | bytearray | memoryview):
        message = "must have a JSON form, got bytes"
        raise ValidationError([Fault("payload", "NOT_JSON", message)])
    try:
        data, _ = encode(payload, MOST_PAYLOAD)
    except PayloadError as error:
        raise ValidationError([error.fault("payload")]) from None
    return msgspec.Raw(data)


def _options(options: Mapping[str, object]) -> dict[str, object]:
    """Return options in their JSON form; what they mean is checked as for a submission."""
    faults = [
        Fault(
            f"options.{name!s:.60}",
            "UNKNOWN_FIELD",
            "is not an option of a schedule" if name in FIELDS else "is not an option",
        )
        for name in options
        if name not in OPTIONS
    ]
    tags = options.get("tags")
    if isinstance(tags, Mapping):
        faults += [
            Fault(f"tags.{tag:.60}", "RESERVED", refusal(tag))
            for tag in tags
            if isinstance(tag, str) and tag.startswith(RESERVED)
        ]
    if faults:
        raise ValidationError(faults)
    try:
        encoded = msgspec.json.encode({k: v for k, v in options.items() if v is not None})
    except (TypeError, ValueError) as error:
        message = f"must have a JSON form: {error}"
        raise ValidationError([Fault("options", "NOT_JSON", message)]) from None
    return msgspec.json.decode(encoded, type=dict[str, object])


def _bounded(field: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        message = f"must be from {least} to {most}, got {shown(value)}"
        raise ValidationError([Fault(field, "OUT_OF_RANGE", message)])
    return value
