"""The company whose week ``holdfast demo --fill`` makes: what it runs, and how that fails."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.job import FailureCategory

TENANTS = ("acme", "globex", "initech", "umbra", "hooli", "stark", "wayne", "tyrell", "cyberdyne")
REGIONS = ("eu-west", "us-east", "ap-south")
WORKERS = ("web-1", "web-2", "batch-1", "batch-2", "media-1")
QUEUES = ("payments", "mail", "hooks", "documents", "media", "search", "reports", "default")

TRACE = """Traceback (most recent call last):
  File "/srv/shop/jobs/{module}.py", line {line}, in {function}
    return await client.{call}({argument})
  File "/srv/shop/lib/http.py", line 88, in request
    response = await self._session.send(prepared, timeout=self.timeout)
  File "/srv/shop/lib/session.py", line 141, in send
    raise {error}(message)
{error}: {message}
"""


class Mishap(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a task fails."""

    code: str
    message: str
    """With {n} for a number and {who} for a customer."""
    error: str
    share: float
    """How often, of all attempts."""
    category: FailureCategory = FailureCategory.TEMPORARY
    lately: timedelta | None = None
    """Only within this time up to now: an incident."""


class CompanyTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the company."""

    type: str
    queue: str
    weight: float
    typical: float
    """Seconds of a typical run."""
    priority: str = "NORMAL"
    module: str = ""
    call: str = "post"
    mishaps: tuple[Mishap, ...] = ()


TASKS = (
    CompanyTask(
        type="payment.capture",
        queue="payments",
        weight=12,
        typical=0.6,
        priority="HIGH",
        call="capture",
        mishaps=(
            Mishap(
                code="GATEWAY_UNAVAILABLE",
                message="gateway-{n}.pay.example answered 503 after {n}.1 s",
                error="GatewayUnavailable",
                share=0.7,
                lately=timedelta(minutes=42),
            ),
            Mishap(
                code="CARD_DECLINED",
                message="card ending in {n}{n}: insufficient funds",
                error="CardDeclined",
                share=0.012,
                category=FailureCategory.PERMANENT,
            ),
        ),
    ),
    CompanyTask(
        type="email.send",
        queue="mail",
        weight=36,
        typical=0.25,
        call="send",
        mishaps=(
            Mishap(
                code="SMTP_TIMEOUT",
                message="smtp-{n}.mail.example did not answer within 30 s",
                error="TimeoutError",
                share=0.018,
            ),
            Mishap(
                code="MAILBOX_UNKNOWN",
                message="550 no such mailbox: '{who}@example.org'",
                error="SMTPRecipientsRefused",
                share=0.006,
                category=FailureCategory.PERMANENT,
            ),
        ),
    ),
    CompanyTask(
        type="webhook.deliver",
        queue="hooks",
        weight=18,
        typical=0.4,
        mishaps=(
            Mishap(
                code="HTTP_503",
                message="https://{who}.example/hooks answered 503",
                error="HTTPStatusError",
                share=0.03,
            ),
        ),
    ),
    CompanyTask(
        type="invoice.render",
        queue="documents",
        weight=11,
        typical=1.8,
        call="render",
        mishaps=(
            Mishap(
                code="KeyError",
                message="'vat_number' of order {n}00{n}",
                error="KeyError",
                share=0.014,
                category=FailureCategory.PERMANENT,
                lately=timedelta(hours=20),
            ),
        ),
    ),
    CompanyTask(
        type="image.thumbnail",
        queue="media",
        weight=13,
        typical=3.2,
        priority="LOW",
        call="resize",
        mishaps=(
            Mishap(
                code="DecodeError",
                message="cannot decode 'upload-{n}.heic': unknown brand 0x6d{n}",
                error="DecodeError",
                share=0.004,
                category=FailureCategory.PERMANENT,
            ),
        ),
    ),
    CompanyTask(type="search.index", queue="search", weight=12, typical=0.08, call="index"),
    CompanyTask(
        type="report.page",
        queue="reports",
        weight=2,
        typical=7.0,
        priority="LOW",
        call="query",
        mishaps=(
            Mishap(
                code="QueryCancelled",
                message="statement timeout after {n}000 ms",
                error="QueryCancelled",
                share=0.02,
            ),
        ),
    ),
    CompanyTask(type="session.sweep", queue="default", weight=1, typical=0.9, priority="BULK"),
)

LOG_LINES = (
    ("info", "loaded order {n}{n} of {who}"),
    ("debug", "connection to {who}.example is warm"),
    ("warning", "retrying after a slow answer of 2.{n} s"),
    ("info", "wrote {n} rows"),
)

SCHEDULES = (
    ("nightly-report", "report.page", "0 2 * * *", "Europe/Berlin", "reports"),
    ("sweep-sessions", "session.sweep", "*/15 * * * *", "UTC", "default"),
    ("reindex", "search.index", "30 * * * *", "UTC", "search"),
    ("monthly-invoices", "invoice.render", "0 6 1 * *", "America/New_York", "documents"),
)
