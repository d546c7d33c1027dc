"""Sentry: what is reported of jobs, through a transport that keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from holdfast import Holdfast, JobContext, TemporaryError, Worker
from holdfast.contrib.sentry import Sentry

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kept(Transport):
    """Keeps the items of envelopes in place of sending them."""

    items: list[tuple[str, dict[str, Any]]]

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [
            (item.headers.get("type", ""), item.payload.json or {}) for item in envelope.items
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [payload for found, payload in self.items if found == kind]


@pytest.fixture
def sent() -> Iterator[Kept]:
    transport = Kept()
    transport.items = []
    sentry_sdk.init(
        "https://key@sentry.invalid/1",
        transport=transport,
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield transport
    sentry_sdk.init()


async def _work(app: Holdfast, *types: str) -> list[str]:
    async with app:
        with sentry_sdk.start_transaction(name="request"):
            jobs = [await app.submit(type_, {"card": "4111"}) for type_ in types]
        await Worker(app).run(burst=True)
    return [job.job_id for job in jobs]


def _app(middleware: Sentry) -> Holdfast:
    app = Holdfast("memory://")
    app.middleware(middleware)

    @app.task("pay", max_attempts=1)
    async def pay(card: str) -> None:
        raise ValueError("no money")

    @app.task("retry")
    async def retry(ctx: JobContext, card: str) -> None:
        if ctx.attempt == 1:
            raise TemporaryError("later", retry_after=0)

    @app.task("report")
    async def report(card: str) -> None: ...

    return app


async def test_final_failure_is_reported_without_its_payload(sent: Kept) -> None:
    job_id, *_ = await _work(_app(Sentry()), "pay", "retry", "report")

    (event,) = sent.of("event")

    assert "ValueError" == event["exception"]["values"][-1]["type"]
    assert ("pay", job_id, 1) == (
        event["tags"]["holdfast.type"],
        event["contexts"]["job"]["id"],
        event["contexts"]["job"]["attempt"],
    )
    assert "4111" not in str(event["contexts"])


async def test_every_failure_and_payloads_are_reported_on_request(sent: Kept) -> None:
    await _work(_app(Sentry(every_failure=True, payloads=True)), "retry", "pay")

    events = sent.of("event")

    assert {"TemporaryError", "ValueError"} == {
        event["exception"]["values"][-1]["type"] for event in events
    }
    assert all({"card": "4111"} == event["contexts"]["payload"]["payload"] for event in events)


async def test_trace_of_the_request_goes_on_in_the_job(sent: Kept) -> None:
    job_id, *_ = await _work(_app(Sentry()), "report")

    request, process = sent.of("transaction")

    assert request["contexts"]["trace"]["trace_id"] == process["contexts"]["trace"]["trace_id"]
    assert "queue.process" == process["contexts"]["trace"]["op"]
    data = process["contexts"]["trace"]["data"]
    assert (job_id, 0, "default") == (
        data["messaging.message.id"],
        data["messaging.message.retry.count"],
        data["messaging.destination.name"],
    )
    assert data["messaging.message.receive.latency"] >= 0
    assert ["queue.publish"] == [span["op"] for span in request["spans"]]


async def test_monitors_check_in_and_out(sent: Kept) -> None:
    await _work(_app(Sentry(monitors={"report": "daily-report", "pay": "pay"})), "report", "pay")

    statuses = {(item["monitor_slug"], item["status"]) for item in sent.of("check_in")}

    assert {
        ("daily-report", "in_progress"),
        ("daily-report", "ok"),
        ("pay", "in_progress"),
        ("pay", "error"),
    } == statuses


async def test_program_without_sentry_runs_its_jobs() -> None:
    sentry_sdk.get_global_scope().set_client(None)
    app = _app(Sentry())
    async with app:
        job = await app.submit("report", {"card": "1"})
        await Worker(app).run(burst=True)

        assert "COMPLETED" == (await app.get(job.job_id)).state
