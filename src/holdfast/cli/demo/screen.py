"""What the demonstration prints: headlines, and a line per event as it happens."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator

import click

from holdfast.model.job import TERMINAL, Event, State
from holdfast.model.status import EventInfo
from holdfast.observe.logging import plain

NARROW = 60


class Screen:
    """Prints events in order and knows which jobs have ended."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._ended: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._running: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.quiet: set[str] = set()
        """Types whose events are not printed one by one."""

    def headline(self, text: str) -> None:
        """Begin a scene."""
        click.secho(f"\n{text}", bold=True)

    def say(self, name: str, text: str) -> None:
        """Print one line with the time since the start."""
        line = f"{time.monotonic() - self._started:6.1f} s  {name:15} {text}"
        room = max(NARROW, shutil.get_terminal_size((100, 24)).columns)
        click.echo(line if len(line) <= room else line[: room - 1] + "…")

    async def ended(self, job_id: str) -> None:
        """Wait until the end of a job was printed."""
        await self._ended[job_id].wait()

    async def running(self, job_id: str) -> None:
        """Wait until the start of a job was printed."""
        await self._running[job_id].wait()

    async def follow(self, events: AsyncIterator[EventInfo]) -> None:
        """Print events until cancelled."""
        async for event in events:
            if event.type not in self.quiet:
                self._show(event)
            if event.transition is not None:
                if event.transition.to_state is State.RUNNING:
                    self._running[event.job_id].set()
                if event.transition.to_state in TERMINAL:
                    self._ended[event.job_id].set()

    def _show(self, event: EventInfo) -> None:
        if event.progress is not None:
            self.say(event.type, f"{event.progress.percent:3} %  {plain(event.progress.message)}")
        elif event.transition is not None and (text := _text(event)):
            self.say(event.type, text)


def _text(event: EventInfo) -> str:
    edge = event.transition
    assert edge is not None
    match edge.to_state:
        case State.RUNNING:
            return f"runs, attempt {edge.attempt}"
        case State.RETRYING if edge.event is Event.LAPSE:
            return f"recovered: {plain(edge.reason)}"
        case State.RETRYING:
            return f"will be retried: {plain(edge.reason)}"
        case State.COMPLETED:
            return click.style("completed", fg="green")
        case State.FAILED | State.DEAD_LETTER | State.CANCELLED:
            return f"{click.style(str(edge.to_state), fg='red')}: {plain(edge.reason)}"
        case _:
            return ""
