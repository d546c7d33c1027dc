"""The schedules of a service: the same names, arguments, results and errors as on a store."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from holdfast.client.requests import encode_body, query
from holdfast.errors import Fault, ValidationError
from holdfast.model.results import SubmissionResult
from holdfast.model.times import shown
from holdfast.operations.schedules import LAST_RUNS, Schedules
from holdfast.tasks.schedule import MissedRuns
from holdfast.tasks.schedule_values import ScheduleInfo

T = TypeVar("T")


class ServiceRequests(Protocol):
    """Calls a service."""

    async def request(
        self, method: str, path: str, kind: type[T], body: bytes = b"", *, subject: str = ""
    ) -> T: ...


class _ScheduleList(msgspec.Struct, frozen=True):
    schedules: tuple[ScheduleInfo, ...]


class _Deleted(msgspec.Struct, frozen=True):
    name: str


class RemoteSchedules(Schedules):
    """The schedules of a service, or of the one namespace that a key sees."""

    def __init__(self, service: ServiceRequests) -> None:
        self._service = service

    async def list(
        self, *, after: str = "", limit: int = 100, runs: int = LAST_RUNS
    ) -> builtins.list[ScheduleInfo]:
        """Return schedules by name, each with its next runs and its newest jobs."""
        parameters = query({"after": after or None, "limit": limit, "runs": runs})
        found = await self._service.request("GET", f"/schedules{parameters}", _ScheduleList)
        return [*found.schedules]

    async def get(self, name: str) -> ScheduleInfo:
        """Return a schedule; NotFoundError when there is none."""
        return await self._service.request("GET", _path(name), ScheduleInfo, subject=name)

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
        """Submit jobs of a type at the times of a cron expression, from now on."""
        body = {
            "name": name,
            "type": type_,
            "expression": expression,
            "tz": tz,
            "payload": payload,
            "missed": missed,
            "paused": paused,
            "options": dict(options or {}),
        }
        return await self._service.request("POST", "/schedules", ScheduleInfo, encode_body(body))

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
        """Change what is given of a dynamic schedule; ``options`` replace all options."""
        given = {"expression": expression, "tz": tz, "missed": missed, "options": options}
        body: dict[str, object] = {
            field: value for field, value in given.items() if value is not None
        }
        if payload is not UNSET:
            body["payload"] = payload
        return await self._service.request(
            "PATCH", _path(name), ScheduleInfo, encode_body(body), subject=name
        )

    async def pause(self, name: str) -> ScheduleInfo:
        """Stop a schedule, also one of the code."""
        return await self._service.request(
            "POST", _path(name, "/pause"), ScheduleInfo, subject=name
        )

    async def resume(self, name: str) -> ScheduleInfo:
        """Start a paused schedule again."""
        return await self._service.request(
            "POST", _path(name, "/resume"), ScheduleInfo, subject=name
        )

    async def run(self, name: str) -> SubmissionResult:
        """Submit a job of a schedule now, beside its ticks."""
        return await self._service.request(
            "POST", _path(name, "/run"), SubmissionResult, subject=name
        )

    async def delete(self, name: str) -> None:
        """Delete a dynamic schedule; the jobs that it made stay."""
        await self._service.request("DELETE", _path(name), _Deleted, subject=name)


def _path(name: str, suffix: str = "") -> str:
    if not isinstance(name, str) or not name:
        raise ValidationError([Fault("name", "INVALID", f"must be a name, got {shown(name)}")])
    return f"/schedules/{quote(name, safe='')}{suffix}"
