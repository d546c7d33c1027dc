"""One run: misfortune while jobs flow, then healing, then judgement."""

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
from holdfast.torture.faults import Chaos, Crash
from holdfast.torture.plan import TICK, TorturePlan
from holdfast.torture.processes import Crew, TortureError
from holdfast.torture.proxy import Proxy
from holdfast.torture.report import Outcome
from holdfast.torture.sandbox import Ground
from holdfast.torture.verdict import Judge
from holdfast.torture.watch import Watch

TICK_SECONDS = 0.1
TELL_EVERY = 5.0
BEHIND = timedelta(minutes=10)
"""How long the schedule had been missed before a run."""

Tell = Callable[[str], None]


async def torture(
    url: str,
    plan: TorturePlan,
    *,
    crash: Crash | None = None,
    tell: Tell = lambda _: None,
    keep: bool = False,
) -> Outcome:
    """Torture a store in a place of its own there, and judge what it made of it.

    ``crash`` crashes its server and returns when that is back. ``keep`` leaves the place.
    """
    clock = SystemClock()
    ground = Ground(url, Randomness().token()[:12])
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-") as folder:
        try:
            store = await open_store(ground.url).start()
            try:
                return await _TortureRun(plan, ground, folder, clock, crash, tell).run(store)
            finally:
                await store.close()
        finally:
            if keep:
                tell(f"kept: {ground.url}")
            else:
                await asyncio.to_thread(ground.clear)


class _TortureRun:
    def __init__(  # what a run is made of
        self,
        plan: TorturePlan,
        ground: Ground,
        folder: str,
        clock: Clock,
        crash: Crash | None,
        tell: Tell,
    ) -> None:
        self._plan = plan
        self._ground = ground
        self._folder = folder
        self._clock = clock
        self._crash = crash
        self._tell = tell

    async def run(self, store: Store) -> Outcome:
        began = self._clock.monotonic()
        since = await self._miss_some_ticks(store)
        ledger.allow(self._folder, 0.0)
        async with self._line() as (proxy, far), self._watch() as watch:
            crew = Crew(self._plan, self._ground.url, far, self._folder, self._clock)
            try:
                randomness = Randomness(self._plan.seed)
                chaos = Chaos(self._plan, crew, randomness, store.now, proxy, self._crash)
                await self._misfortune(crew, chaos, watch)
                if proxy is not None:
                    proxy.heal()
                await self._heal(crew, watch)
                seconds = self._clock.monotonic() - began
            finally:
                drained = store.now()
                await asyncio.to_thread(crew.dismiss)
            self._tell("judging every job by its audit records")
            judge = Judge(self._plan, self._folder, chaos, watch, proxy)
            return await judge.outcome(
                store, schedule_since=since, drained=drained, seconds=seconds
            )

    async def _misfortune(self, crew: Crew, chaos: Chaos, watch: Watch) -> None:
        """Let jobs flow and things go wrong until both are over."""
        told = moved = self._clock.monotonic()
        ended = 0
        while crew.producing or not chaos.is_over:
            await asyncio.sleep(TICK_SECONDS)
            crew.met(watch.present)
            crew.tend()
            chaos.once(watch.ended / self._plan.jobs)
            ledger.allow(self._folder, chaos.allowed)
            now = self._clock.monotonic()
            if watch.ended > ended:
                ended, moved = watch.ended, now
            if now - moved > self._plan.patience:
                raise TortureError("the queue", f"nothing ended for {now - moved:.0f} s")
            if now - told > TELL_EVERY:
                told = now
                faults = ", ".join(f"{n} {kind}" for kind, n in sorted(chaos.counts.items()))
                self._tell(f"{watch.ended} jobs ended, {watch.live} to go; {faults}")

    async def _heal(self, crew: Crew, watch: Watch) -> None:
        """Disturb nothing any more; every job must end."""
        self._tell("no more faults; waiting for the rest to end")
        crew.resume_all()
        deadline, seen = self._clock.monotonic() + self._plan.patience, watch.looks
        while self._clock.monotonic() < deadline:
            if watch.looks > seen + 1 and not watch.live:
                return
            crew.met(watch.present)
            crew.tend()
            await asyncio.sleep(TICK_SECONDS)

    async def _miss_some_ticks(self, store: Store) -> datetime:
        """Have the schedule begin in the past, so that workers find runs they missed."""
        since = store.now() - BEHIND
        note = format_timestamp(since).encode()
        await store.hold(f"cron:first:{TICK}", "torture", timedelta(days=36_500), note)
        return since

    @contextlib.asynccontextmanager
    async def _line(self) -> AsyncIterator[tuple[Proxy | None, str]]:
        """A line that can be cut, and the place as seen through it."""
        if self._ground.server is None or not self._plan.cuts:
            yield None, self._ground.url
            return
        async with Proxy(*self._ground.server) as proxy:
            yield proxy, self._ground.through(proxy.port)

    @contextlib.asynccontextmanager
    async def _watch(self) -> AsyncIterator[Watch]:
        watch = Watch(self._ground.url, self._clock)
        await watch.start()
        try:
            yield watch
        finally:
            await watch.stop()
