"""An application written for Celery runs on holdfast, unchanged but for its imports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import LimitRule, Priority, Worker
from holdfast.cli import cli
from holdfast.contrib.celery import (
    Celery,
    Task,
    TaskRevokedError,
    UnsupportedError,
    chain,
    chord,
    crontab,
    group,
)
from holdfast.contrib.celery.check import check
from holdfast.contrib.celery.schedules import expression_of
from holdfast.worker.loading import load_app
from tests.processes import running

SHOP = (Path(__file__).parent / "shop.py").read_text("utf-8")
CALL = "import json, shop; print(json.dumps(shop.main()))"
WITH_CELERY = """
import json, shop
from celery.contrib.testing.worker import start_worker

shop.app.conf.broker_transport_options = {"polling_interval": 0.02}
with start_worker(shop.app, perform_ping_check=False, pool="threads", loglevel="ERROR"):
    print(json.dumps(shop.main()))
"""
IMPORT = re.compile(r"^from celery(\.[a-z.]+)? import", re.MULTILINE)


def _ours(text: str) -> str:
    return IMPORT.sub("from holdfast.contrib.celery import", text)


def _environment(folder: Path, url: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if "DJANGO" not in name}
    return {
        **others,
        "BROKER": url,
        "BACKEND": url,
        "NOTES": str(folder / "notes"),
        "PYTHONPATH": str(folder),
    }


def _run(program: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    (folder / "notes").touch()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def of_celery(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the application does with Celery itself."""
    folder = tmp_path_factory.mktemp("celery")
    (folder / "shop.py").write_text(SHOP, "utf-8")
    environment = _environment(folder, "memory://") | {"BACKEND": "cache+memory://"}
    return _run(WITH_CELERY, folder, environment)


def _url(store: str, folder: Path, request: pytest.FixtureRequest) -> str:
    match store:
        case "postgres":
            server = request.getfixturevalue("postgres_server")
            return f"{server.dsn}?schema=celery_{uuid.uuid4().hex[:10]}"
        case "redis":
            server = request.getfixturevalue("valkey_server")
            return f"{server.url}?prefix=c{uuid.uuid4().hex[:10]}"
    return f"sqlite:///{folder}/jobs.db"


@pytest.mark.slow
@pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)
def test_application_does_what_it_does_with_celery(
    store: str, of_celery: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "shop.py").write_text(_ours(SHOP), "utf-8")
    url = _url(store, tmp_path, request)

    command = [sys.executable, "-m", "holdfast", "worker", "shop:app", "--no-supervisor"]

    environment = _environment(tmp_path, url)

    with running(command, cwd=tmp_path, env=environment):
        ours = _run(CALL, tmp_path, environment)

    assert of_celery == ours


def _app(tmp_path: Path, **options: Any) -> Celery:
    return Celery("tests", broker=f"sqlite:///{tmp_path}/jobs.db", set_as_current=False, **options)


def test_schedules_of_beat_are_schedules_of_holdfast(tmp_path: Path) -> None:
    app = _app(tmp_path)
    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "nightly": {"task": "t.add", "schedule": crontab(hour=3, minute=30), "args": (1, 2)},
        "often": {"task": "t.add", "schedule": timedelta(seconds=10), "options": {"queue": "q"}},
    }

    crons = app.holdfast.crons

    assert ("30 3 * * *", "Europe/Berlin", {"args": [1, 2], "kwargs": {}}) == (
        crons["nightly"].expression,
        crons["nightly"].tz,
        crons["nightly"].payload,
    )
    assert ("*/10 * * * * *", "q") == (crons["often"].expression, crons["often"].options["queue"])


@pytest.mark.parametrize(
    ("seconds", "expression"),
    [
        (1, "*/1 * * * * *"),
        (30.0, "*/30 * * * * *"),
        (60, "0 */1 * * * *"),
        (900, "0 */15 * * * *"),
        (3600, "0 0 */1 * * *"),
        (43200, "0 0 */12 * * *"),
        (86400, "0 0 0 * * *"),
    ],
)
def test_intervals_become_ticks_of_the_clock(seconds: float, expression: str) -> None:
    assert expression == expression_of(seconds)


@pytest.mark.parametrize("seconds", [0, 0.5, 7, 61, 5400, 172800, -1])
def test_intervals_that_no_clock_ticks_are_refused(seconds: float) -> None:
    with pytest.raises(UnsupportedError, match="divides a minute, an hour or a day"):
        expression_of(seconds)


@pytest.mark.parametrize(
    ("setting", "value", "instead"),
    [
        ("task_serializer", "pickle", "payloads and results are JSON"),
        ("task_soft_time_limit", 5, "use time_limit"),
        ("worker_concurrency", 4, "--slots"),
        ("no_such_setting", 1, "table of settings"),
    ],
)
def test_setting_that_cannot_be_kept_is_refused(
    setting: str, value: object, instead: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=f"{setting}.*{instead}"):
        _app(tmp_path).conf.update({setting: value})


def test_settings_are_read_from_a_module_with_a_namespace(tmp_path: Path) -> None:
    app = _app(tmp_path)

    app.config_from_object(
        SimpleNamespace(CELERY_TASK_ALWAYS_EAGER=True, OTHER=1, CELERY_TIMEZONE="Asia/Tokyo"),
        namespace="CELERY",
    )

    assert (True, "Asia/Tokyo") == (app.conf.task_always_eager, app.conf["timezone"])


@pytest.mark.parametrize("broker", ["amqp://guest@localhost//", "sqs://"])
def test_broker_that_is_no_store_is_refused_by_name(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)

    with pytest.raises(UnsupportedError, match="set HOLDFAST_URL to a store"):
        _ = Celery("x", broker=broker, set_as_current=False).holdfast


def test_options_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    app = _app(tmp_path)

    @app.task
    def plain() -> None: ...

    with pytest.raises(UnsupportedError, match=r"soft_time_limit.*use time_limit"):
        app.task(soft_time_limit=3)(plain.run)
    with pytest.raises(UnsupportedError, match=r"task_id.*idempotency_key"):
        plain.apply_async(task_id="mine")
    with pytest.raises(UnsupportedError, match="a number from 0 to 9"):
        plain.apply_async(priority=10)
    with pytest.raises(UnsupportedError, match="chunks"):
        plain.s().chunks([], 2)


def test_options_become_options_of_jobs(tmp_path: Path) -> None:
    app = _app(tmp_path)
    app.conf.task_routes = {"mail.*": {"queue": "mail"}}

    @app.task(name="mail.send", rate_limit="10/m", time_limit=5, max_retries=7)
    def send() -> None: ...

    job = app.submission(send.signature(priority=9, headers={"a": "b"}, expires=60))
    declared = app.holdfast.registry["mail.send"].options

    assert ("mail", "CRITICAL", {"a": "b"}) == (job.queue, Priority(job.priority).name, job.headers)
    assert {"args": [], "kwargs": {}, "expires": 60} == job.payload
    assert (8, LimitRule(rate=10, per=timedelta(minutes=1))) == (
        declared.max_attempts,
        declared.limit,
    )


def test_expired_task_does_not_start(tmp_path: Path) -> None:
    app, ran = _app(tmp_path), []

    @app.task(name="late")
    def late() -> None:
        ran.append(1)

    result = late.apply_async(expires=0.000001)
    asyncio.run(_work(app))

    assert ("REVOKED", []) == (result.state, ran)
    with pytest.raises(TaskRevokedError, match="before it started"):
        result.get(timeout=5)


def test_revoked_task_does_not_run_and_progress_is_shown(tmp_path: Path) -> None:
    app = _app(tmp_path)
    seen: list[object] = []

    @app.task(name="work", bind=True)
    def work(self: Task) -> str:
        self.update_state(state="PROGRESS", meta={"current": 1, "total": 4})
        seen.append(self.request.id)
        return "done"

    revoked, kept = work.delay(), work.delay()
    app.control.revoke(revoked.id)
    asyncio.run(_work(app))

    assert ("REVOKED", "SUCCESS", [kept.id]) == (revoked.state, kept.state, seen)
    job = kept.job
    assert job is not None
    assert job.progress is not None
    assert 25 == job.progress.percent


def test_retry_with_other_arguments_runs_with_them(tmp_path: Path) -> None:
    app = _app(tmp_path)

    @app.task(name="again", bind=True)
    def again(self: Task, number: int) -> int:
        if number < 3:
            raise self.retry((number + 1,), countdown=0)
        return number

    result = again.delay(2)
    asyncio.run(_work(app))

    assert 3 == result.get(timeout=5)


def test_always_eager_app_runs_canvases_without_a_worker(tmp_path: Path) -> None:
    app = _app(tmp_path)
    app.conf.task_always_eager = True

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    @app.task(name="sum")
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    steps = group(double.s(1), double.s(2)) | add_up.s() | double.s()

    assert 12 == steps.delay().get()
    assert [2, 4] == group(double.s(1), double.s(2))().get()


def test_empty_header_gives_the_body_an_empty_list(tmp_path: Path) -> None:
    app = _app(tmp_path)

    @app.task(name="sum")
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    result = chord(group())(add_up.s())
    asyncio.run(_work(app))

    assert 0 == result.get(timeout=5)


async def _work(app: Celery) -> None:
    async with app.holdfast:
        await Worker(app.holdfast).run(burst=True)


PROJECT = """
from celery import Celery, Task, bootsteps
from celery.signals import task_prerun
from celery.schedules import crontab, solar
from kombu import Queue

app = Celery("p")
app.conf.task_queues = [Queue("a")]
app.conf.update(worker_concurrency=3, task_acks_late=True)


@app.task(soft_time_limit=3, max_retries=2, wrong=1)
def one(self):
    self.replace("x".replace("a", "b"))
    one.apply_async(task_id="1", countdown=3, serializer="pickle")


@app.task
async def two(): ...
"""


def test_code_base_is_checked_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROJECT, "utf-8")
    (tmp_path / "other.py").write_text("raise SystemExit", "utf-8")

    found, files = check(tmp_path)

    assert 1 == files
    assert [
        (2, "import of bootsteps"),
        (3, "import of celery.signals"),
        (4, "import of solar"),
        (5, "import of kombu"),
        (8, "the setting task_queues"),
        (9, "the setting worker_concurrency"),
        (12, "the task option soft_time_limit"),
        (12, "the task option wrong"),
        (14, "replace()"),
        (15, "the option task_id"),
        (15, "a serializer other than json"),
        (19, "a coroutine as a task"),
    ] == [(finding.line, finding.what) for finding in found]


def test_command_reports_findings_and_the_application_has_none(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROJECT, "utf-8")
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    run = CliRunner().invoke

    bad = run(cli, ["celery", "check", str(tmp_path / "p.py")])
    good = run(cli, ["celery", "check", str(tmp_path / "shop.py")])
    missing = run(cli, ["celery", "check", "no.such.package"])

    assert (1, 0) == (bad.exit_code, good.exit_code)
    assert "p.py:12: the task option soft_time_limit: use time_limit" in bad.output
    assert "1 file uses Celery; no findings" in good.output
    assert missing.exit_code != 0


def test_get_of_a_chain_or_chord_raises_what_the_failed_task_raised(tmp_path: Path) -> None:
    app = _app(tmp_path)

    @app.task(name="fail")
    def fail(number: int) -> int:
        raise ValueError(f"no {number}")

    @app.task(name="next")
    def following(number: object) -> object:
        return number

    chained = chain(fail.s(1), following.s(), following.s()).apply_async()
    joined = chord([following.s(1), fail.s(2)], following.s()).apply_async()
    asyncio.run(_work(app))

    for result, message in ((chained, "no 1"), (joined, "no 2")):
        with pytest.raises(ValueError, match=message):
            result.get(timeout=5)
        assert "FAILURE" == result.state


def test_what_is_not_there_names_what_to_use(tmp_path: Path) -> None:
    app = _app(tmp_path)

    @app.task(name="t")
    def task() -> None: ...

    for attempt, what in (
        (lambda: task.map([1]), "map is not supported: submit group"),
        (lambda: task.starmap([(1,)]), "starmap is not supported: submit group"),
        (lambda: task.chunks([(1,)], 2), "chunks is not supported"),
        (lambda: app.backend, "app.backend is not supported: a job keeps its own result"),
        (lambda: app.AsyncResult("x").children, "children is not supported"),
    ):
        with pytest.raises(UnsupportedError, match=re.escape(what)):
            attempt()


def test_arguments_arrive_as_their_parameters_are_annotated(tmp_path: Path) -> None:
    app, seen = _app(tmp_path), []

    @app.task(name="typed", bind=True)
    def typed(
        self: Task, when: datetime, price: Decimal, *, key: uuid.UUID, data: bytes | None, text
    ) -> None:
        seen.extend([when, price, key, data, text, self.request.hostname])

    @app.task(name="plain")
    def plain(number: int, other: list[date]) -> None:
        seen.extend([number, other])

    now, key = datetime(2026, 1, 1, tzinfo=UTC), uuid.uuid4()
    typed.delay(now, Decimal("1.50"), key=key, data=b"\x00x", text=now)
    asyncio.run(_work(app))
    plain.delay("not a number", [now.date()])
    asyncio.run(_work(app))

    text = "2026-01-01T00:00:00Z"
    assert [now, Decimal("1.50"), key, b"\x00x", text] == seen[:5]
    assert seen[5]
    assert ["not a number", [now.date()]] == seen[6:]


@pytest.mark.parametrize("initial", ["", "from .celery import app as celery_app\n"])
def test_worker_finds_the_app_in_the_module_celery_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, initial: str
) -> None:
    name = f"usual_{len(initial)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(initial, "utf-8")
    (tmp_path / name / "celery.py").write_text(
        "from holdfast.contrib.celery import Celery\n\napp = Celery(broker='memory://')\n", "utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert "memory://" == load_app(name).url


USUAL = {
    "shop/__init__.py": "",
    "shop/celeryconfig.py": """
from datetime import timedelta
task_soft_time_limit = 5
result_expires = 60
task_acks_late = True
own = 1
beat_schedule = {
    "good": {"task": "t", "schedule": timedelta(seconds=30)},
    "bad": {"task": "t", "schedule": 45.0},
    "worse": {"task": "t", "schedule": timedelta(minutes=7), "args": (1,)},
}
""",
    "shop/celery.py": """
from celery import Celery
app = Celery("shop", broker="amqp://localhost//", include=["shop.tasks"])
app.config_from_object("shop.celeryconfig")
app.conf.task_serializer = "pickle"
app.conf.result_serializer = "json"
""",
    "shop/tasks.py": """
from celery import shared_task
from celery.utils.log import get_task_logger
from .celery import app
@shared_task(bind=True)
def add(self, x, y):
    return self.request.hostname, self.request.parent_id, self.request.retries
result = add.delay(1, 2)
result.children, result.get(), [node.children for node in ()]
add.map([(1, 2)]), map(str, []), frame.map(str)
app.backend.get("x")
""",
    "shop/moved.py": "from holdfast.contrib.celery import Celery\napp = Celery()\napp.backend\n",
}


def test_settings_modules_and_names_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop").mkdir()
    for name, text in USUAL.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)

    found, files = check(Path("shop"))
    single = CliRunner().invoke(cli, ["celery", "check", "shop.moved"])

    assert 3 == files
    assert [
        ("celery.py", 3, "a broker of amqp"),
        ("celery.py", 5, "task_serializer='pickle'"),
        ("celeryconfig.py", 3, "the setting task_soft_time_limit"),
        ("celeryconfig.py", 4, "the setting result_expires"),
        ("celeryconfig.py", 9, "an interval of 45 s"),
        ("celeryconfig.py", 10, "an interval of 420 s"),
        ("moved.py", 3, "app.backend"),
        ("tasks.py", 7, "self.request.parent_id"),
        ("tasks.py", 9, "children of a result"),
        ("tasks.py", 10, "map()"),
    ] == [(Path(each.path).name, each.line, each.what) for each in found]
    assert (1, "shop/moved.py:3: app.backend: a job") == (single.exit_code, single.output[:35])


def test_module_of_loggers_is_where_celery_has_it() -> None:
    from holdfast.contrib.celery.utils.log import get_task_logger

    assert "shop" == get_task_logger("shop").name
