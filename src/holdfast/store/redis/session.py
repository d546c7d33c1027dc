"""What the verbs share: the server, its keys, its time, and how a script is called."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.model.job import Job
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.store.redis import fields
from holdfast.store.redis.client import RedisClient, Value
from holdfast.store.redis.decode import JobReply, read_job
from holdfast.store.redis.health import RedisHealth, examine
from holdfast.store.redis.settings import RedisKeys, RedisSettings

REFRESH_AFTER = 5.0
"""Seconds after which the server's time is read again."""


class RedisSession:
    """One store's connection to its server.

    ``clock`` replaces the server's time and is for tests.
    """

    def __init__(self, settings: RedisSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.keys = RedisKeys(settings.prefix)
        self.client = RedisClient(settings)
        self.health = RedisHealth()
        self.clock = clock
        self._local = SystemClock()
        self._ahead = 0.0
        self._learned_at = 0.0
        self.constants: tuple[Value, ...] = (
            settings.events_kept,
            settings.foreign_lifetime // fields.MICROSECOND,
            settings.lock_duration // fields.MICROSECOND,
            settings.for_scripts(),
        )

    async def open(self) -> None:
        """Connect, learn the server's time, and refuse a server that may lose jobs."""
        if not self.client.is_open:
            await self.client.open(self.keys.jobs)
        for _ in range(3):
            await self._read_time()
        self.health = await examine(self.client, self.settings)

    async def close(self) -> None:
        """Close every connection."""
        await self.client.close()

    def now(self) -> datetime:
        """Return the server's time, as far as known here."""
        if self.clock is not None:
            return self.clock.now()
        return fields.EPOCH + timedelta(seconds=self._local.monotonic() + self._ahead)

    def monotonic(self) -> float:
        """Return this process's monotonic time, for ``learn_time``."""
        return self._local.monotonic()

    def learn_time(self, server_micros: int, sent_at: float) -> None:
        """Correct the offset to the server's time: the smallest that is never behind it.

        So no decision after a reply is dated before the times in the reply.
        """
        server = server_micros / 1_000_000
        behind = server - self._local.monotonic() > self._ahead
        self._ahead = server - sent_at if behind else min(self._ahead, server - sent_at)
        self._learned_at = sent_at

    async def refresh(self) -> None:
        """Learn the server's time when that is due: the server's clock may be set."""
        if self.clock is None and self._local.monotonic() - self._learned_at > REFRESH_AFTER:
            await self._read_time()

    async def _read_time(self) -> None:
        sent_at = self.monotonic()
        seconds, micros = await self.client.command("TIME")
        self.learn_time(int(seconds) * 1_000_000 + int(micros), sent_at)

    async def call(self, name: str, *args: Value) -> Any:
        """Run a script with the arguments that every script has, then its own."""
        await self.refresh()
        moment = "" if self.clock is None else fields.micros(self.clock.now())
        common = (self.settings.prefix, moment, *self.constants)
        return await self.client.run(name, self.keys.jobs, (*common, *args))

    def read(self, reply: JobReply) -> Job:
        """Read a job from a script's reply."""
        return read_job(reply, self.settings.foreign)

    def warn(self, text: str) -> None:
        """Add a warning for the operator, once."""
        if text not in self.health.warnings:
            self.health = replace(self.health, warnings=(*self.health.warnings, text))
