"""One run: inject faults under load, wait for all jobs to end, evaluate the records."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from holdfast.model.times import format_timestamp
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store, open_store
from holdfast.torture import ledger
from holdfast.torture.faults import Crash, FaultInjector
from holdfast.torture.plan import CRON_TASK, TorturePlan
from holdfast.torture.processes import Processes, TortureError
from holdfast.torture.proxy import Proxy
from holdfast.torture.report import Outcome
from holdfast.torture.sandbox import TortureSandbox
from holdfast.torture.verdict import Evaluator
from holdfast.torture.watch import StoreMonitor

POLL = 0.1
REPORT_EVERY = 5.0
MISSED_SCHEDULE = timedelta(minutes=10)
"""For how long before a run the cron schedule appears to have been missed."""

OnProgress = Callable[[str], None]


async def torture(
    url: str,
    plan: TorturePlan,
    *,
    crash: Crash | None = None,
    progress: OnProgress = lambda _: None,
    keep: bool = False,
) -> Outcome:
    """Run jobs and faults in a sandbox in a store, and evaluate every job.

    ``crash`` crashes the store's server and returns when it is back. ``progress`` receives
    lines of text. ``keep`` leaves the sandbox in the store.
    """
    clock = SystemClock()
    sandbox = TortureSandbox(url, Randomness().token()[:12])
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-") as folder:
        try:
            store = await open_store(sandbox.url).start()
            try:
                return await _TortureRun(plan, sandbox, folder, clock, crash, progress).run(store)
            finally:
                await store.close()
        finally:
            if keep:
                progress(f"kept: {sandbox.url}")
            else:
                await asyncio.to_thread(sandbox.remove)


class _TortureRun:
    def __init__(  # the parts of a run
        self,
        plan: TorturePlan,
        sandbox: TortureSandbox,
        folder: str,
        clock: Clock,
        crash: Crash | None,
        progress: OnProgress,
    ) -> None:
        self._plan = plan
        self._sandbox = sandbox
        self._folder = folder
        self._clock = clock
        self._crash = crash
        self._progress = progress

    async def run(self, store: Store) -> Outcome:
        began = self._clock.monotonic()
        since = await self._backdate_schedule(store)
        ledger.allow(self._folder, 0.0)
        async with self._proxied() as (proxy, proxied_url), self._monitored() as monitor:
            processes = Processes(
                self._plan, self._sandbox.url, proxied_url, self._folder, self._clock
            )
            try:
                randomness = Randomness(self._plan.seed)
                faults = FaultInjector(
                    self._plan, processes, randomness, store.now, proxy, self._crash
                )
                await self._run_with_faults(processes, faults, monitor)
                if proxy is not None:
                    proxy.stop_cutting()
                await self._drain(processes, monitor)
                seconds = self._clock.monotonic() - began
            finally:
                drained = store.now()
                await asyncio.to_thread(processes.stop)
            self._progress("checking every job against its audit records")
            evaluator = Evaluator(self._plan, self._folder, faults, monitor, proxy)
            return await evaluator.outcome(
                store, schedule_since=since, drained=drained, seconds=seconds
            )

    async def _run_with_faults(
        self, processes: Processes, faults: FaultInjector, monitor: StoreMonitor
    ) -> None:
        """Inject faults until all of them have happened and all jobs are submitted."""
        reported = moved = self._clock.monotonic()
        ended = 0
        while processes.producing or not faults.is_done:
            await asyncio.sleep(POLL)
            processes.maintain(monitor.workers)
            faults.inject(monitor.ended / self._plan.jobs)
            ledger.allow(self._folder, faults.allowed)
            now = self._clock.monotonic()
            if monitor.ended > ended:
                ended, moved = monitor.ended, now
            if now - moved > self._plan.patience:
                raise TortureError("the queue", f"nothing ended for {now - moved:.0f} s")
            if now - reported > REPORT_EVERY:
                reported = now
                counts = ", ".join(f"{n} {kind}" for kind, n in sorted(faults.counts.items()))
                self._progress(f"{monitor.ended} jobs ended, {monitor.live} to go; {counts}")

    async def _drain(self, processes: Processes, monitor: StoreMonitor) -> None:
        """Wait without further faults until every job has ended."""
        self._progress("no more faults; waiting for all jobs to end")
        processes.resume_all()
        deadline, reads = self._clock.monotonic() + self._plan.patience, monitor.reads
        while self._clock.monotonic() < deadline:
            if monitor.reads > reads + 1 and not monitor.live:
                return
            processes.maintain(monitor.workers)
            await asyncio.sleep(POLL)

    async def _backdate_schedule(self, store: Store) -> datetime:
        """Start the schedule in the past, so that workers find runs that were missed."""
        since = store.now() - MISSED_SCHEDULE
        note = format_timestamp(since).encode()
        await store.lock(f"cron:first:{CRON_TASK}", "torture", timedelta(days=36_500), note)
        return since

    @contextlib.asynccontextmanager
    async def _proxied(self) -> AsyncIterator[tuple[Proxy | None, str]]:
        """Start a proxy, if the store has a server; yield it and the URL through it."""
        if self._sandbox.server is None or not self._plan.cuts:
            yield None, self._sandbox.url
            return
        async with Proxy(*self._sandbox.server) as proxy:
            yield proxy, self._sandbox.url_through(proxy.port)

    @contextlib.asynccontextmanager
    async def _monitored(self) -> AsyncIterator[StoreMonitor]:
        monitor = StoreMonitor(self._sandbox.url, self._clock)
        await monitor.start()
        try:
            yield monitor
        finally:
            await monitor.stop()
