"""The seconds from ``kill -9`` of a worker to the next start of its job, beside other queues.

``python -m bench recovery``. Each trial has a store of its own, a worker that runs one endless job,
and a second worker that waits. Two deaths: of the process that runs the job, alone, and of
everything that belongs to its worker, as when the host loses its power. They are the same for a
library whose worker is one process without a parent. Each is tried with the library's defaults and
with the fastest settings in its documentation. No other jobs are submitted.

The peers are installed from PyPI into environments that are removed at the end, or kept for another
run in the folder that ``$RECOVERY_PEERS`` names. Trials wait side by side, at most for ``BOUND``
seconds; what takes longer is shown as such. The figure is the median of three where the first trial
was quick. ``--only celery,rq`` tries the queues whose names begin so. Oban for Python needs Python
3.12 on the path.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench.effort import Effort
from bench.recovery.entrants import Entrant, holdfast, peers
from bench.recovery.trial import Bench, Case, Failed, seconds_to_restart
from tests.servers import Postgres, Valkey

BOUND = 100.0
QUICK = 20.0
"""Seconds; what recovers within these is tried three times."""
AT_ONCE = 3
"""Trials that start or kill processes at the same time, and installations."""
STORES = ("SQLite", "PostgreSQL", "Redis")
DEATHS = ("process", "host")
SETTINGS = ("default", "fastest")
HEAD = """\
| | store | process, default | process, fastest | host, default | host, fastest |
| --- | --- | --: | --: | --: | --: |"""
Urls = Callable[[str], str]


async def main(*, effort: Effort, folder: str | None, only: str = "") -> None:
    """Print the table."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        began, urls = time.monotonic(), _servers(stack, place, effort)
        stores = effort.pick(STORES, STORES, STORES[:1])
        entrants = _chosen(only, [*map(holdfast, stores), *_installed(place, effort)])
        bench = Bench(place, effort.pick(BOUND, 30.0, 5.0), asyncio.Semaphore(AT_ONCE))
        deaths = effort.pick(DEATHS, DEATHS, DEATHS[:1])
        settings = effort.pick(SETTINGS, SETTINGS, SETTINGS[:1])
        cases = [
            Case(*each) for each in itertools.product(entrants, deaths, settings) if _differs(*each)
        ]
        found = await asyncio.gather(
            *(_median(case, urls, bench, effort.pick(3, 1, 1)) for case in cases)
        )
        _show(entrants, dict(zip(cases, found, strict=True)))
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"\n{time.monotonic() - began:.0f} s; load of the machine at the end: {load}")


def _servers(stack: ExitStack, place: Path, effort: Effort) -> Urls:
    """Start the servers; return a function that makes an empty store and returns its URL."""
    numbers = itertools.count()
    if not effort.installs:
        return lambda _: f"sqlite:///{place}/{next(numbers)}.db"
    postgres = stack.enter_context(Postgres())
    valkey = stack.enter_context(Valkey(["--databases", "1000"]))

    def url(store: str) -> str:
        number = next(numbers)
        if store == "Redis":
            return f"redis://127.0.0.1:{valkey.port}/{number}"
        if store == "PostgreSQL":
            with psycopg.connect(postgres.dsn, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE recovery{number}")
            return f"{postgres.dsn.rpartition('/')[0]}/recovery{number}"
        return f"sqlite:///{place}/{number}.db"

    return url


def _installed(place: Path, effort: Effort) -> list[Entrant]:
    if not effort.installs:
        return []
    folder = Path(os.environ.get("RECOVERY_PEERS", place))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda name: peers()[name](folder / name), peers()))
    print(*(each for each in found if isinstance(each, str)), sep="\n")
    return [each for each in found if isinstance(each, Entrant)]


def _chosen(only: str, entrants: list[Entrant]) -> list[Entrant]:
    """Return the entrants whose names begin with one of the words."""
    words = tuple(only.lower().split(","))
    return [each for each in entrants if each.name.lower().startswith(words)]


def _differs(entrant: Entrant, death: str, setting: str) -> bool:
    """Whether the case is not the same as another one."""
    return (entrant.has_parent or death == DEATHS[0]) and (
        entrant.has_fastest or setting == SETTINGS[0]
    )


async def _median(case: Case, urls: Urls, bench: Bench, times: int) -> str:
    """Return the seconds as text."""
    taken: list[float] = []
    try:
        while len(taken) < times and (not taken or taken[0] < QUICK):
            url = urls(case.entrant.store)
            if case.entrant.name != "holdfast":
                url = url.removeprefix("sqlite:///")
            taken.append(await seconds_to_restart(case, url, bench))
    except Failed as error:
        print(f"{case.entrant.name}, {case.death}, {case.setting} failed:\n{error}")
        return "failed"
    seconds = statistics.median(taken)
    shown = f"> {bench.bound:.0f}" if math.isinf(seconds) else f"{seconds:.{_digits(seconds)}f}"
    each = ", ".join(f"{seconds:.2f}" for seconds in taken)
    print(f"{case.entrant.name} on {case.entrant.store}, {case.death}, {case.setting}: {each}")
    return shown


def _digits(seconds: float) -> int:
    return 2 if seconds < 1 else 1 if seconds < 10 else 0


def _show(entrants: list[Entrant], found: dict[Case, str]) -> None:
    print(f"\n{HEAD}")
    for entrant in entrants:
        deaths = DEATHS if entrant.has_parent else DEATHS[:1] * 2
        cases = [Case(entrant, death, setting) for death in deaths for setting in SETTINGS]
        shown = [found.get(case, "-") for case in cases]
        print(f"| {entrant.name} | {entrant.store} | {' | '.join(shown)} |")
