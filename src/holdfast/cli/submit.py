"""``holdfast submit``: submits a job."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from datetime import timedelta

import click
import msgspec

from holdfast.api.submissions import BatchBody
from holdfast.app import Holdfast
from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.errors import FAILED, TIMED_OUT, USAGE, CommandError
from holdfast.cli.spans import SPAN
from holdfast.cli.tables import facts, moment, state_shown, table
from holdfast.model.job import SELECTABLE_KINDS, Priority, State
from holdfast.model.results import BatchResult, SubmissionResult
from holdfast.model.status import JobStatus
from holdfast.model.submission import SubmitOptions
from holdfast.model.times import shown


@click.command()
@click.argument("type_", metavar="[TYPE]", required=False)
@click.argument("payload", required=False)
@click.option("--bytes", "as_bytes", is_flag=True, help="Treat the payload as bytes, not JSON.")
@click.option("--queue", help="The queue; by default the task's, else default.")
@click.option(
    "--priority",
    type=click.Choice([p.name for p in Priority], case_sensitive=False),
    help="The priority within the queue.",
)
@click.option("--delay", type=SPAN, help="Wait this long before the first attempt.")
@click.option("--scheduled-at", metavar="TIME", help="Start at this time or later.")
@click.option("--hold", is_flag=True, help="Wait for `holdfast release`.")
@click.option("--timeout", type=SPAN, help="The longest time for one attempt.")
@click.option("--lifetime", type=SPAN, help="The longest time for the whole job.")
@click.option("--lease", type=SPAN, help="The lease: how soon a silent worker loses the job.")
@click.option("--max-attempts", type=int, help="From 1 to 100, including the first.")
@click.option("--backoff", metavar="JSON", help='The backoff, such as {"strategy": "LINEAR"}.')
@click.option(
    "--retry-timeouts/--no-retry-timeouts", default=None, help="Whether a timeout is retried."
)
@click.option(
    "--retry-crashes/--no-retry-crashes",
    default=None,
    help="Whether a crash of the worker, a lost lease or exhausted memory is retried.",
)
@click.option(
    "--remove-on-complete",
    metavar="JSON",
    help='On Redis: true, false, how many completed jobs to keep, or {"age": 60, "count": 9}.',
)
@click.option("--remove-on-fail", metavar="JSON", help="The same for failed jobs.")
@click.option(
    "--deduplication",
    metavar="JSON",
    help='On Redis: BullMQ\'s deduplication, {"id": "report", "ttl": 60}; also extend, replace, '
    "reschedule, keep_last_if_active.",
)
@click.option("--idempotency-key", metavar="KEY", help="Submit nothing if the key is in use.")
@click.option("--idempotency-window", type=SPAN, help="How long the key stays in use.")
@click.option("--correlation-id", metavar="ID", help="Your own id for correlation.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A label for searches.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Context for the handler."
)
@click.option("--depends-on", multiple=True, metavar="JOB", help="Run after this job.")
@click.option(
    "--dependency-type",
    type=click.Choice(list(SELECTABLE_KINDS), case_sensitive=False),
    help="What it waits for.",
)
@click.option(
    "--callback-url", metavar="URL", help="The address that receives a webhook when the job ends."
)
@click.option("--limit-key", metavar="KEY", help="The key whose limit applies.")
@click.option("--app", metavar="MODULE:APP", help="Apply the defaults of this app's task.")
@click.option(
    "--batch",
    type=click.File("rb"),
    metavar="FILE",
    help="Submit the jobs of a file instead, a JSON array or one JSON object per line.",
)
@click.option(
    "--atomic/--no-atomic", default=True, help="With --batch: all jobs or none, or each by itself."
)
@click.option("--wait", is_flag=True, help="Wait until the job ends; exit 1 unless it completed.")
@click.option("--wait-timeout", type=SPAN, help="Stop waiting after this time; exit 4.")
@store_options
def submit(
    type_: str | None,
    payload: str | None,
    as_bytes: bool,
    app: str | None,
    wait: bool,
    wait_timeout: timedelta | None,
    url: str | None,
    as_json: bool,
    **given: object,
) -> None:
    """Submit a job of TYPE. PAYLOAD is JSON; - reads it from standard input.

    SPAN is a duration: 30 (seconds), 30s, 5m, 1h, or ISO 8601 such as PT5M. With --batch FILE, the
    objects of the file have the fields of a submission, and refer to each other by ref.
    """
    batch, atomic = given.pop("batch"), bool(given.pop("atomic"))
    if isinstance(batch, io.BufferedIOBase):
        _check_alone(type_, given, as_bytes, wait, given.pop("hold"))
        _submit_batch(batch.read(), url, app, as_json, atomic=atomic)
        return
    if type_ is None:
        raise CommandError("give the TYPE of a job, or --batch FILE", USAGE)
    body = _payload(payload, as_bytes=as_bytes)
    options = _options(given)

    async def operate(queue: Holdfast) -> SubmissionResult | JobStatus:
        result = await queue.submit(type_, body, **options)
        return await _ended(queue, result.job_id, wait_timeout) if wait else result

    result = on_store(url, operate, new=True, app=app, contents=True)
    answer(result, as_json=as_json, show=lambda: _show(result))
    _check_completed(result)


async def _ended(queue: Holdfast, job_id: str, longest: timedelta | None) -> JobStatus:
    try:
        return await queue.wait(job_id, timeout=longest)
    except TimeoutError:
        why = (await queue.explain(job_id)).message
        message = f"job {job_id} has not ended within {shown(longest)}: {why}"
        raise CommandError(message, TIMED_OUT) from None


def _check_completed(result: SubmissionResult | JobStatus) -> None:
    if isinstance(result, JobStatus) and result.state is not State.COMPLETED:
        raise CommandError(f"job {result.job_id} ended {result.state}", FAILED)


def _check_alone(type_: str | None, given: Mapping[str, object], *flags: object) -> None:
    if type_ is not None or any(flags) or any(v not in (None, ()) for v in given.values()):
        message = "--batch takes no TYPE and no options of a job: the file holds them"
        raise CommandError(message, USAGE)


def _submit_batch(
    data: bytes, url: str | None, app: str | None, as_json: bool, *, atomic: bool
) -> None:
    jobs = _jobs_of(data)
    result = on_store(
        url,
        lambda queue: queue.submit_batch(jobs, atomic=atomic),
        new=True,
        app=app,
        contents=True,
    )
    answer(BatchBody.of(result), as_json=as_json, show=lambda: _show_batch(result))
    if result.rejected:
        raise click.exceptions.Exit(FAILED)


def _jobs_of(data: bytes) -> list[dict[str, object]]:
    """Read an array of jobs, or one job per line."""
    try:
        if data.lstrip().startswith(b"["):
            return msgspec.json.decode(data, type=list[dict[str, object]])
        lines = [line for line in data.splitlines() if line.strip()]
        return [msgspec.json.decode(line, type=dict[str, object]) for line in lines]
    except msgspec.DecodeError as error:
        raise CommandError(f"--batch must hold JSON objects: {error}", USAGE) from None


def _show_batch(result: BatchResult) -> None:
    click.echo(f"{result.accepted} accepted, {result.rejected} rejected")
    table(
        ("ID", "STATUS", "STATE", "ERROR"),
        [(r.job_id, r.status, r.state or "", str(r.error or "")) for r in result.results],
    )


def tags_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=VALUE texts."""
    tags = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"--tag must be NAME=VALUE, got {text!r}", USAGE)
        tags[name] = value
    return tags


def _payload(text: str | None, *, as_bytes: bool) -> object:
    if text is None:
        return None
    data = sys.stdin.buffer.read() if text == "-" else text.encode()
    return data if as_bytes else msgspec.Raw(data.strip() or b"null")


def _options(given: Mapping[str, object]) -> SubmitOptions:
    options = {name: value for name, value in given.items() if value not in (None, ())}
    for name in ("tags", "headers"):
        if name in options:
            options[name] = tags_of(given[name])  # type: ignore[arg-type]  # click made a tuple
    for name in ("backoff", "remove_on_complete", "remove_on_fail", "deduplication"):
        if name in options:
            options[name] = _json(name, str(options[name]))
    return options  # type: ignore[return-value]  # the library checks every value


def _json(name: str, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        option = name.replace("_", "-")
        raise CommandError(f"--{option} must be JSON: {error}", USAGE) from None


def _show(result: SubmissionResult | JobStatus) -> None:
    if isinstance(result, JobStatus):
        output = "" if result.output is None else msgspec.json.encode(result.output).decode()
        error = result.failure.message if result.failure else None
        facts(
            [
                ("job", result.job_id),
                ("state", state_shown(result.state)),
                ("output", output),
                ("error", error),
            ]
        )
        return
    later = moment(result.scheduled_for) if result.state is State.DELAYED else None
    facts(
        [
            ("job", result.job_id),
            ("status", result.status),
            ("state", "deleted" if result.existing_job_deleted else state_shown(result.state)),
            ("due", later),
            *(("warning", text) for text in result.warnings),
        ]
    )
