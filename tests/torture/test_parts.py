"""The parts of a crash run, one by one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import ValidationError
from holdfast.model import lifecycle
from holdfast.model.job import Job, Priority
from holdfast.runtime.clock import SystemClock
from holdfast.torture import ledger
from holdfast.torture.plan import ProcessPlan, TorturePlan
from holdfast.torture.processes import ManagedProcess
from holdfast.torture.proxy import Proxy
from holdfast.torture.report import Outcome, Recovery
from holdfast.torture.sandbox import TortureSandbox
from holdfast.torture.verdict import Evaluator
from holdfast.torture.watch import StoreMonitor
from tests.cli.conftest import Place, place
from tests.conformance.hand import make

__all__ = ["place"]


# --- the proxy -------------------------------------------------------------------------------


class Echo:
    """A server that replies with what it receives, and records it."""

    def __init__(self, *, silent: bool = False) -> None:
        self.received: list[bytes] = []
        self.silent = silent
        """Whether it replies to the first request only."""
        self._arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                self.received.append(data)
                self._arrived.set()
                if not self.silent or len(self.received) == 1:
                    writer.write(data)
        writer.close()

    async def wait_until_received(self, data: bytes) -> None:
        while data not in self.received:
            self._arrived.clear()
            await self._arrived.wait()


@contextlib.asynccontextmanager
async def _connected(
    echo: Echo,
) -> AsyncIterator[tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Proxy("127.0.0.1", port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"first")
        assert b"first" == await reader.read(100)
        yield proxy, reader, writer
        writer.close()


async def test_proxy_resets_idle_lines() -> None:
    echo = Echo()
    async with _connected(echo) as (proxy, reader, _):
        assert proxy.reset_idle()

        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        assert (1, 0, 0) == (proxy.reset, proxy.cut_before, proxy.cut_after)


async def test_proxy_leaves_a_line_with_a_request_under_way() -> None:
    echo = Echo(silent=True)
    async with _connected(echo) as (proxy, _, writer):
        writer.write(b"second")
        await echo.wait_until_received(b"second")

        assert not proxy.reset_idle()


async def test_process_that_ends_by_itself_is_counted(tmp_path: Path) -> None:
    plan = ProcessPlan(folder=str(tmp_path), url="memory://", lease=1.0, name="w", seed=1)
    process = ManagedProcess("holdfast.no_such_module", plan, tmp_path / "log", SystemClock())
    process.popen.wait()
    process.maintain()
    assert 1 == process.deaths

    process.kill()
    process.popen.wait()
    process.maintain()

    assert 1 == process.deaths
    process.kill()
    process.popen.wait()


async def test_proxy_passes_requests_and_replies() -> None:
    echo = Echo()
    async with _connected(echo) as (_, reader, writer):
        writer.write(b"second")

        assert b"second" == await reader.read(100)


async def test_cut_before_the_request_sends_nothing() -> None:
    echo = Echo()
    async with _connected(echo) as (proxy, reader, writer):
        proxy.cut(after=False)
        writer.write(b"second")

        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        assert [b"first"] == echo.received
        assert (1, 0) == (proxy.cut_before, proxy.cut_after)


async def test_cut_before_the_reply_has_sent_the_request() -> None:
    echo = Echo()
    async with _connected(echo) as (proxy, reader, writer):
        proxy.cut(after=True)
        writer.write(b"second")

        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        assert [b"first", b"second"] == echo.received
        assert (0, 1) == (proxy.cut_before, proxy.cut_after)


async def test_connection_that_closes_by_itself_leaves_its_cut_to_the_next() -> None:
    echo = Echo(silent=True)
    async with _connected(echo) as (proxy, _, writer):
        proxy.cut(after=True)
        writer.write(b"second")
        await echo.wait_until_received(b"second")
        writer.close()
        await writer.wait_closed()
        echo.silent = False
        reader, another = await asyncio.open_connection("127.0.0.1", proxy.port)
        another.write(b"third")
        assert b"third" == await reader.read(100), "sent before the proxy was connected"
        another.write(b"fourth")

        with pytest.raises(ConnectionResetError):
            await reader.read(100)
        assert 1 == proxy.cut_after


# --- the sandbox -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("sqlite:////data/jobs.db", "sqlite:////data/jobs.db.torture_x"),
        ("sqlite:///j.db?durability=process", "sqlite:///j.db.torture_x?durability=process"),
        ("postgresql://u@h/db?schema=mine", "postgresql://u@h/db?schema=mine&schema=torture_x"),
        ("postgresql:///db", "postgresql:///db?schema=torture_x"),
        ("redis://h:1/0?timeout=3", "redis://h:1/0?timeout=3&prefix=torture_x"),
    ],
)
def test_run_uses_a_separate_place_in_the_store(url: str, own: str) -> None:
    assert own == TortureSandbox(url, "x").url


def test_url_through_a_proxy_changes_only_the_address() -> None:
    sandbox = TortureSandbox("postgresql://u:p@db:7/x", "x")

    assert ("db", 7) == sandbox.server
    assert "postgresql://u:p@127.0.0.1:99/x?schema=torture_x" == sandbox.url_through(99)
    assert TortureSandbox("sqlite:///j.db", "x").server is None


def test_memory_store_is_refused() -> None:
    with pytest.raises(ValidationError, match="several processes"):
        TortureSandbox("memory://", "x")


def test_remove_deletes_only_the_files_of_the_run(tmp_path: Path) -> None:
    for name in ("jobs.db", "jobs.db-wal", "jobs.db.torture_x", "jobs.db.torture_x-wal"):
        (tmp_path / name).touch()

    TortureSandbox(f"sqlite:///{tmp_path}/jobs.db", "x").remove()

    assert ["jobs.db", "jobs.db-wal"] == sorted(path.name for path in tmp_path.iterdir())


# --- the files outside the queue ---------------------------------------------------------------


def test_ledgers_of_several_processes_are_read_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ledger.Ledger(str(tmp_path), "responses", name).write(f"accepted {name}", "other")

    words = list(ledger.read(str(tmp_path), "responses"))

    assert [["accepted", "a"], ["other"], ["accepted", "b"], ["other"]] == words


def test_ledger_appends_after_a_restart(tmp_path: Path) -> None:
    for line in ("one", "two"):
        ledger.Ledger(str(tmp_path), "responses", "a").write(line)

    assert "one\ntwo\n" == (tmp_path / "responses-a").read_text()


# --- recoveries ------------------------------------------------------------------------------

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def _reaped(claimed: float, expired: float, ready: float, again: float) -> Job:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(claimed))
    job = lifecycle.due(lifecycle.lease_lost(job, now=_later(expired)), now=_later(ready))
    return lifecycle.claimed(job, token="u", worker="v", now=_later(again))


def _evaluator(killed: float, *outages: tuple[float, float]) -> Evaluator:
    monitor = StoreMonitor("memory://", SystemClock())
    monitor.outages = [(_later(begin), _later(end)) for begin, end in outages]
    faults: Any = SimpleNamespace(killed_at={"w": _later(killed)})
    return Evaluator(TorturePlan(), "", faults, monitor, None)


@pytest.mark.parametrize(
    ("killed", "outages", "ready", "recovered"),
    [
        (2.0, [], [4.0], [5.0]),
        (2.0, [(3.0, 3.5), (9.0, 10.0)], [3.5], [4.5]),
        (2.0, [(6.5, 20.0)], [4.0], [4.5]),
        (9.0, [], [], []),
    ],
    ids=["killed", "outage before", "outage at the end", "paused, killed later"],
)
def test_recovery_counts_from_the_kill_without_outages(
    killed: float, outages: list[tuple[float, float]], ready: list[float], recovered: list[float]
) -> None:
    job = _reaped(claimed=1, expired=5, ready=6, again=7)
    evaluator = _evaluator(killed, *outages)
    evaluator.add(job, job.trail)

    assert (ready, recovered) == (evaluator.ready, evaluator.recovered)


@pytest.mark.parametrize(("priority", "counted"), [("NORMAL", [5.0]), ("LOW", []), ("BULK", [])])
def test_job_of_low_priority_does_not_count_as_late(priority: str, counted: list[float]) -> None:
    job = replace(_reaped(claimed=1, expired=5, ready=6, again=7), priority=int(Priority[priority]))
    evaluator = _evaluator(2.0)
    evaluator.add(job, job.trail)

    assert ([4.0], counted) == (evaluator.ready, evaluator.recovered)


def test_unfinished_jobs_are_kept() -> None:
    job, evaluator = _reaped(claimed=1, expired=5, ready=6, again=7), _evaluator(2.0)
    evaluator.add(job, job.trail)
    done = lifecycle.completed(job, b"1", now=_later(8))
    evaluator.add(done, done.trail)

    assert [job] == [unfinished for unfinished, _ in evaluator.unfinished]


# --- the outcome -----------------------------------------------------------------------------


def _outcome(**changes: object) -> Outcome:
    given: dict[str, object] = {
        "plan": TorturePlan(lease=3.0, slots=10),
        "jobs": 1_000_000,
        "seconds": 1.0,
        "violations": {"lost": 0},
        "happened": {"kills": 10},
        "required": ["kills"],
        "findings": [],
        "effects": 1000,
        "repeated": 5,
        "ready": Recovery.of([4.0]),
        "recovery": Recovery.of([5.0]),
    }
    return Outcome(**{**given, **changes})  # type: ignore[arg-type]  # forged


def test_good_outcome_has_no_problems() -> None:
    assert [] == _outcome().problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"violations": {"lost": 1}}, "lost: 1"),
        ({"happened": {"kills": 0}}, "never happened: kills"),
        ({"recovery": Recovery.of([5.1])}, "recovery p99 5.10 s is above 5 s"),
        ({"repeated": 6}, "6 effects repeated, above 5"),
        ({"repeated": 101, "jobs": 9_999}, "101 effects repeated, above 100"),
    ],
)
def test_every_counter_that_is_not_as_required_is_a_problem(
    changes: dict[str, object], problem: str
) -> None:
    assert [problem] == _outcome(**changes).problems


def test_recovery_has_percentiles() -> None:
    assert (101, 50.0, 99.0, 100.0) == (
        *(Recovery.of([float(n) for n in range(101)]).count,),
        *(
            getattr(Recovery.of([float(n) for n in range(101)]), k)
            for k in ("p50", "p99", "longest")
        ),
    )
    assert 0 == Recovery.of([]).count


# --- the command -----------------------------------------------------------------------------


@pytest.mark.slow
def test_command_runs_beside_the_users_file_and_removes_its_own(place: Place) -> None:
    job_id = place.submit("greet", '{"name": "you"}')

    done = place.process("torture", "--jobs", "400", "--kills", "2", "--pauses", "0", "--json")

    assert 0 == done.returncode, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (2, []) == (result["happened"]["kills"], result["problems"])
    assert result["jobs"] >= 400
    assert ["greet"] == [job.type for job in place.stored(job_id)]
    assert not list(place.path.glob("*torture*"))


def test_server_crashes_need_a_command_that_crashes_the_server(place: Place) -> None:
    result = place.run("torture", "--server-crashes", "1")

    assert 2 == result.exit_code
    assert "--on-crash" in result.stderr
