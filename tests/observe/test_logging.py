"""Log lines: readable, parseable, escaped, without payloads."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from holdfast import Holdfast, JobContext, PermanentError, TemporaryError, Worker
from holdfast.observe.logging import LOGGER, JsonLines, LogObserver, LogWriter, configure, plain


@pytest.fixture(autouse=True)
def _reset_logger() -> Iterator[None]:
    root = logging.getLogger()
    before = (LOGGER.handlers, LOGGER.level, LOGGER.propagate)
    of_root = (root.handlers, root.level)
    yield
    LOGGER.handlers, LOGGER.level, LOGGER.propagate = before
    root.handlers, root.level = of_root


def _logged(event: str, *, style: str = "text", level: str = "debug", **fields: object) -> str:
    stream = io.StringIO()
    configure(level, style, stream)
    LogObserver().emit(event, **fields)
    return stream.getvalue()


JOB = {"job_id": "0123456789ab", "type": "email.send", "attempt": 2, "queue": "default"}


def test_line_about_a_job_has_its_id_type_attempt_and_time() -> None:
    line = _logged("job.completed", **JOB, seconds=0.0123)

    assert line.endswith(
        " INFO    job completed  0123456789ab email.send attempt 2 in 0.012 s queue=default\n"
    )


def test_json_line_holds_every_field_in_full() -> None:
    due = datetime(2026, 1, 1, tzinfo=UTC)
    line = json.loads(
        _logged("job.retrying", style="json", **JOB, error="no", due_at=due, left=None)
    )

    assert line.pop("time").endswith("Z")
    assert {
        "level": "INFO",
        "event": "job.retrying",
        **JOB,
        "error": "no",
        "due_at": "2026-01-01T00:00:00+00:00",
    } == line


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ("job.started", "DEBUG"),
        ("job.completed", "INFO"),
        ("something.new", "INFO"),
        ("job.dead", "WARNING"),
        ("store.unavailable", "WARNING"),
        ("results.lost", "WARNING"),
        ("maintenance.failed", "ERROR"),
    ],
)
def test_level_shows_whether_a_person_has_to_act(event: str, level: str) -> None:
    assert level == json.loads(_logged(event, style="json"))["level"]


def test_events_below_the_level_are_not_written() -> None:
    assert "" == _logged("job.completed", level="warning", **JOB)


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "evil",
    ["two\nlines", "\x1b[31mred", "a\rb", "\u202egnp.exe", "nul\x00", "\u2028", "\x85", "\ud800"],
)
def test_text_from_elsewhere_cannot_forge_or_reorder_lines(style: str, evil: str) -> None:
    line = _logged("job.failed", style=style, **JOB | {"type": evil}, error=evil)

    assert 1 == len(line.splitlines())
    assert line.endswith("\n")
    assert not set(evil) & set(line.rstrip("\n")) & set("\n\x1b\r\u202e\x00\u2028\x85\ud800")


def test_long_text_is_cut() -> None:
    line = _logged("job.failed", **JOB, error="x" * 100_000)

    assert len(line) < 1000
    assert "x" * 300 in line


def test_ordinary_text_stays_as_it_is() -> None:
    assert "Grüße, 世界 🎉" == plain("Grüße, 世界 🎉")


def test_records_of_other_loggers_are_shown_too() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "plain %s", ("words",), None)

    assert LogWriter().format(record).endswith("plain words  logger=x")
    assert "plain words" == json.loads(JsonLines().format(record))["event"]


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_lines_of_a_handler_appear_with_its_job(style: str, kind: str) -> None:
    stream, own = io.StringIO(), logging.getLogger("shop.mail")
    logging.getLogger().handlers = []  # as in a program; pytest has its own there
    configure("info", style, stream)
    app = Holdfast("memory://")

    def write() -> None:
        own.debug("too fine")
        own.info("charged %.2f, token=%s", 3.5, "hunter2")
        try:
            raise KeyError("password=hunter2")
        except KeyError:
            own.exception("lost")

    async def coroutine() -> None:
        write()

    app.register("t", coroutine if kind == "coroutine" else write)
    async with app:
        job = await app.submit("t")
        await Worker(app).run(burst=True)

    text = stream.getvalue()
    assert "too fine" not in text
    assert "hunter2" not in text
    if style == "text":
        charged = f"INFO    charged 3.50, token=***  {job.job_id} t attempt 1 logger=shop.mail\n"
        assert charged in text
        assert "\n    Traceback (most recent call last):\n" in text
    else:
        (line,) = [
            parsed
            for parsed in map(json.loads, text.splitlines())
            if parsed["event"] == "charged 3.50, token=***"
        ]
        assert ("shop.mail", job.job_id, "t", 1) == (
            line["logger"],
            line["job_id"],
            line["type"],
            line["attempt"],
        )
        lost = next(p for p in map(json.loads, text.splitlines()) if p["event"] == "lost")
        assert "Traceback (most recent call last):\n" in lost["stack_trace"]


def test_root_logger_that_the_program_has_set_up_stays_as_it_is() -> None:
    own, root = logging.NullHandler(), logging.getLogger()
    root.handlers = [own]

    configure("info", "text", io.StringIO())

    assert [own] == root.handlers


@pytest.mark.parametrize("style", ["text", "json"])
async def test_traceback_of_a_failed_attempt_is_logged_without_secrets(style: str) -> None:
    stream = io.StringIO()
    configure("info", style, stream)
    app = Holdfast("memory://")

    @app.task("t", max_attempts=1)
    async def fails() -> None:
        raise ValueError("password=hunter2")

    async with app:
        await fails.submit()
        await Worker(app, observer=LogObserver()).run(burst=True)

    text = stream.getvalue()
    assert "Traceback (most recent call last):" in text
    assert "in fails" in text
    assert "ValueError: password=***" in text
    assert "hunter2" not in text.replace('raise ValueError("password=hunter2")', "")
    if style == "json":
        assert all(json.loads(line)["event"] for line in text.splitlines())


@pytest.mark.parametrize("style", ["text", "json"])
async def test_worker_never_logs_a_payload_and_always_names_the_job(style: str) -> None:
    stream = io.StringIO()
    configure("debug", style, stream)
    app = Holdfast("memory://")

    @app.task("good")
    async def good(ctx: JobContext, secret: str) -> str:
        await ctx.log("INFO", f"job's own log: {secret}")
        return secret

    @app.task("bad", max_attempts=2)
    async def bad(secret: str) -> None:
        raise TemporaryError("later", retry_after=0) if secret else PermanentError("never")

    async with app:
        await good.submit("hunter2")
        await bad.submit("hunter2")
        await Worker(app, observer=LogObserver()).run(burst=True)

    lines = stream.getvalue().splitlines()
    assert "hunter2" not in stream.getvalue()
    about_jobs = [line for line in lines if "job completed" in line or '"job.' in line]
    assert about_jobs
    if style == "json":
        parsed = [json.loads(line) for line in lines]
        jobs = [line for line in parsed if line["event"].startswith("job.")]
        assert {"job.started", "job.completed", "job.retrying", "job.dead"} == {
            line["event"] for line in jobs
        }
        assert all({"job_id", "type", "attempt"} <= line.keys() for line in jobs)


@pytest.mark.parametrize("event", ["http.failed", "dashboard.failed"])
def test_server_errors_are_errors_in_the_log(monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(LOGGER, "handlers", [])
    configure("error", "json", stream)

    LogObserver().emit(event, request_id="r", error="KeyError()")

    assert "KeyError()" in stream.getvalue()
