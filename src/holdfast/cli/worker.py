"""Commands that run jobs: worker, dev."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import click

from holdfast import config
from holdfast.app import Holdfast
from holdfast.cli.app_options import app_flags, app_options, others
from holdfast.cli.app_path import find_app
from holdfast.cli.common import url_option
from holdfast.cli.errors import FAILED, USAGE, CommandError
from holdfast.cli.reload import reloading_parent, run_reloading
from holdfast.config import Settings
from holdfast.errors import MissingExtraError
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.observe import logging
from holdfast.observe.redaction import redacted
from holdfast.runtime.event_loop import run
from holdfast.runtime.processes import on_parent_exit
from holdfast.worker import Worker
from holdfast.worker.metrics import MeasuringObserver, count_submissions, measured
from holdfast.worker.probe import Probe, read_address, shared_numbers

LOGGING = "holdfast.observe.logging:from_environment"
MEASURING = "holdfast.worker.metrics:measuring_observer"
"""The observers of worker processes: without and with a probe."""

log_level_option = click.option(
    "--log-level", type=click.Choice(logging.LEVELS), help="How much to log.  [info]"
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(logging.FORMATS),
    help="Text or JSON lines.  [text]",
)


@click.command()
@click.argument("app", metavar="MODULE:APP", required=False)
@click.option(
    "-Q",
    "--queues",
    multiple=True,
    metavar="A,B=3",
    help="The queues: in this order, or with weights.  [default]",
)
@click.option(
    "-c",
    "--slots",
    "--concurrency",
    metavar="N",
    help="The slots: concurrent jobs of one process.  [20, more coroutines]",
)
@click.option("--processes", metavar="N", help="Worker processes.  [1]")
@click.option(
    "--supervisor/--no-supervisor",
    default=None,
    help="Run them under a supervisor, which replaces a dead one and releases its jobs.  [on]",
)
@click.option("--burst", is_flag=True, help="Stop when no job is ready or running.")
@click.option("--probe", metavar="HOST:PORT", help="Serve /live, /ready and /metrics there.")
@click.option("--grace", metavar="SPAN", help="How long a stop waits for running jobs.  [30 s]")
@app_options
@log_level_option
@log_format_option
@url_option
def worker(
    app: str | None, queues: tuple[str, ...], burst: bool, url: str | None, **flags: object
) -> None:
    """Run the jobs of an app until TERM or INT.

    The first signal waits for running jobs, the second returns them to the queue at once.
    MODULE alone means its `app`, or the only app in it.
    """
    settings = config.load(flags=_flags(app, queues, url, flags))
    probe = _probe(settings)
    with shared_numbers() if probe and settings["worker.supervisor"] else contextlib.nullcontext():
        _work(settings, burst=burst, probe=probe)


def _work(settings: Settings, *, burst: bool, probe: tuple[str, int] | None) -> None:
    path, found = find_app(settings)
    logging.configure(settings.text("log.level"), settings.text("log.format"))
    _introduce(found, settings)
    if not _is_supervised(settings, found):
        _run(found, settings, _queues(settings), burst=burst, probe=probe)
        return
    from holdfast.worker.supervisor.supervisor import supervise

    code = supervise(
        path,
        processes=_number(settings, "worker.processes"),
        queues=_queues(settings),
        slots=_slots(settings),
        grace=_grace(settings),
        burst=burst,
        observer=MEASURING if probe else LOGGING,
        probe=probe,
    )
    if code:
        raise CommandError("the worker processes keep exiting, see above", FAILED)


@click.command()
@click.argument("app", metavar="MODULE:APP", required=False)
@click.option("--reload/--no-reload", default=True, help="Restart when sources change.  [on]")
@click.option("--port", metavar="N", help="The port of API and dashboard.  [8080]")
@url_option
def dev(app: str | None, reload: bool, port: str | None, url: str | None) -> None:
    """Run an app while you develop it, and serve its API and dashboard to this machine.

    It serves every queue that its tasks name and logs everything.

    When a source file below the current folder changes, the worker restarts: running jobs get
    two seconds to finish, then they return to the queue.
    """
    if reload:
        options = [f"--{name}={value}" for name, value in (("port", port), ("url", url)) if value]
        given = [*([app] if app else []), *options]
        sys.exit(run_reloading(["dev", "--no-reload", *given], Path.cwd()))
    flags = {
        "app": app,
        "url": url,
        "listen.port": port,
        "log.level": "debug",
        "worker.grace": 2,
    }
    settings = config.load(flags=flags)
    _, found = find_app(settings)
    named = {h.options.queue for h in found.registry if h.options.queue}
    queues = sorted({DEFAULT_QUEUE, *named})
    click.echo(f"store      {redacted(found.url)}", err=True)
    click.echo(f"queues     {', '.join(queues)}", err=True)
    for handler in found.registry:
        click.echo(f"task       {handler.type} ({handler.runner})", err=True)
    _run(found, settings, queues, burst=False, serving=True)


def _introduce(app: Holdfast, settings: Settings) -> None:
    """Log what this worker serves, and what looks like a mistake."""
    observer = logging.LogObserver(app.redaction)
    types = [handler.type for handler in app.registry]
    observer.emit(
        "worker.serves",
        store=redacted(app.url),
        queues=list(_queues(settings)),
        tasks=types,
        slots=_slots(settings) or "20 or more",
        processes=_number(settings, "worker.processes"),
    )
    if not types:
        advice = "register tasks with @app.task in the module you name, or in one it imports"
        observer.emit("worker.no_tasks", advice=advice)
    if (path := _new_file(app.url)) is not None:
        observer.emit("store.new", file=path)


def _new_file(url: str) -> str | None:
    """The SQLite file of a URL, if it does not exist yet."""
    if not url.startswith("sqlite:"):
        return None
    from holdfast.store.sqlite.location import Location

    path = Location.from_url(url).path
    return None if path.exists() else str(path.absolute())


def _run(
    app: Holdfast,
    settings: Settings,
    queues: list[str] | dict[str, float],
    *,
    burst: bool,
    serving: bool = False,
    probe: tuple[str, int] | None = None,
) -> None:
    logging.configure(settings.text("log.level"), settings.text("log.format"))
    if app.shares_store:
        click.echo("holdfast: the jobs are kept in memory: no other process sees them", err=True)

    log = logging.LogObserver(app.redaction)
    observer = MeasuringObserver(log) if probe else log
    count_submissions(app, observer)

    async def work() -> None:
        started = Worker(
            app,
            queues=queues,
            slots=_slots(settings),
            grace=_grace(settings),
            observer=observer,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, started.stop)
        if (parent := reloading_parent()) is not None:
            on_parent_exit(lambda: loop.call_soon_threadsafe(started.stop), parent)
        async with contextlib.AsyncExitStack() as stack:
            if serving:
                await stack.enter_async_context(_served(app, settings))
            if probe:
                served = Probe(app.clock, lambda: started.not_ready, several=False)
                await stack.enter_async_context(served.serving(*probe))
                await stack.enter_async_context(measured(observer, started))
            await started.run(burst=burst)

    run(work())


@contextlib.asynccontextmanager
async def _served(app: Holdfast, settings: Settings) -> AsyncIterator[None]:
    """Serve API and dashboard to this machine, if the extra is installed and the port is free."""
    try:
        from holdfast.dashboard import Dashboard
        from holdfast.http.server import ListenAddress, beside
    except ImportError:
        click.echo("dashboard  not installed: pip install 'holdfast-queue[server]'", err=True)
        yield
        return
    place = ListenAddress(port=_port(settings))
    async with contextlib.AsyncExitStack() as stack:
        try:
            address = await stack.enter_async_context(beside(app, place, pages=Dashboard))
        except OSError as error:
            problem = f"port {place.port}: {error.strerror}"
            click.echo(f"dashboard  unavailable: {problem}; name another with --port", err=True)
        else:
            click.echo(f"api        {address}/docs", err=True)
            click.echo(f"dashboard  {address}/", err=True)
        yield


def _flags(
    app: str | None, queues: tuple[str, ...], url: str | None, flags: Mapping[str, object]
) -> dict[str, object]:
    names = {"log_level": "log.level", "log_format": "log.format"}
    given: dict[str, object] = {
        names.get(name, f"worker.{name}"): value for name, value in others(flags).items()
    }
    return {
        **given,
        **app_flags(flags),
        "app": app,
        "url": url,
        "worker.queues": list(queues) or None,
    }


def _is_supervised(settings: Settings, app: Holdfast) -> bool:
    """Whether a supervisor starts the workers: unless refused, or the store is in memory."""
    alone = settings["worker.processes"] == 1
    if not settings["worker.supervisor"] and not alone:
        raise CommandError("--no-supervisor runs one process: omit --processes", USAGE)
    return not alone or (settings["worker.supervisor"] is True and not app.shares_store)


def _probe(settings: Settings) -> tuple[str, int] | None:
    """Where the probe is served; MissingExtraError when what it needs is not installed."""
    given = settings["worker.probe"]
    if given is None:
        return None
    if find_spec("prometheus_client") is None:
        raise MissingExtraError("metrics", "prometheus-client")
    return read_address(str(given))


def _queues(settings: Settings) -> list[str] | dict[str, float]:
    value = settings["worker.queues"]
    assert isinstance(value, list | dict)
    return value


def _port(settings: Settings) -> int:
    return int(settings.text("listen.port"))


def _slots(settings: Settings) -> int | None:
    return None if settings["worker.slots"] is None else _number(settings, "worker.slots")


def _number(settings: Settings, key: str) -> int:
    value = settings[key]
    assert isinstance(value, int)
    return value


def _grace(settings: Settings) -> timedelta:
    value = settings["worker.grace"]
    assert isinstance(value, timedelta)
    return value
