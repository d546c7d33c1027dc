"""Secrets do not reach logs, error texts or the terminal."""

from __future__ import annotations

import io
import time

import pytest
from click.testing import CliRunner

from holdfast import Holdfast, JobContext, State
from holdfast.cli.commands import cli
from holdfast.observe import logging
from holdfast.observe.redaction import Redaction, redacted
from tests.worker.rig import ended, working

SECRET = "s3cr3t-9f1c"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot reach postgresql://user:{SECRET}@db.internal:5432/jobs?x=1",
        f"redis://:{SECRET}@host/0 refused",
        f"postgresql://u:p@{SECRET}@host/db",
        f"password={SECRET}",
        f"PASSWORD: {SECRET}, next",
        f'{{"api_key": "{SECRET} and more", "n": 1}}',
        f"{{'X-Api-Key': '{SECRET}'}}",
        f"access_token={SECRET}&page=2",
        f"Authorization: Bearer {SECRET}",
        f"sent header bearer {SECRET}",
        f"client_secret = '{SECRET}'",
        f"secret whsec_{SECRET.replace('-', 'A')}",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    shown = redacted(text)

    assert SECRET not in shown
    assert SECRET.replace("-", "A") not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "job 3f2a failed: connection refused",
        "http://host:8080/path?email=a@b.c",
        "tokens are counted",
        "see the secret garden",
        "Unexpected token < in JSON at position 0",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert text == redacted(text)


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "password" * 20_000, "://:" * 30_000, "=" * 90_000]
)
def test_long_texts_are_masked_fast(text: str) -> None:
    before = time.process_time()

    redacted(text)

    assert time.process_time() - before < 1.0


def test_further_names_and_a_hook_are_masked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Redaction("iban", hook=lambda text: text.replace("Miller", "M."))

    assert "iban=*** of M." == own.text("iban=DE00 of Miller")
    monkeypatch.setenv("HOLDFAST_REDACT_NAMES", "ssn, iban")
    assert "ssn: ***" == Redaction.from_environment().text("ssn: 123-45")


def test_log_lines_mask_fields_by_name_and_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logging.LOGGER, "handlers", [])
    logging.configure("info", "json", stream)

    logging.LogObserver().emit(
        "store.unavailable", error=f"postgresql://u:{SECRET}@h/db", token=SECRET, lost=3
    )

    assert SECRET not in stream.getvalue()
    assert '"lost": 3' in stream.getvalue()


@pytest.mark.req("M-12")
async def test_error_texts_logs_and_progress_of_handlers_are_masked() -> None:
    app = Holdfast("memory://", redaction=Redaction("iban"))

    @app.task("leak", max_attempts=1)
    async def leak(ctx: JobContext) -> None:
        await ctx.log("INFO", f"password={SECRET}", token=SECRET, iban="DE00")
        await ctx.report_progress(1, f"iban: {SECRET}")
        raise RuntimeError(f"cannot log in at postgresql://me:{SECRET}@db/x")

    async with working(app):
        job = await app.submit("leak")
        assert State.DEAD_LETTER is await ended(app, job.job_id)
        failure = await app.failure(job.job_id)
        status = await app.get(job.job_id, include_history=True)
        logs = await app.logs(job.job_id)

    assert "cannot log in at postgresql://me:***@db/x" == failure.failure.message
    for shown in (failure, status, logs):
        assert SECRET not in repr(shown)
    assert {"token": "***", "iban": "***"} == logs[0].fields


def test_command_line_shows_no_password_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS", f"k1:{SECRET}")

    shown = CliRunner().invoke(cli, ["config", "--url", f"postgresql://me:{SECRET}@db/jobs"])

    assert 0 == shown.exit_code
    assert "postgresql://me:***@db/jobs" in shown.output
    assert SECRET not in shown.output
