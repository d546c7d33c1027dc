"""Which jobs a worker announces to serve."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.model.acceptance import accept
from holdfast.model.submission import Defaults, Submission
from holdfast.model.workers import (
    PREFIX,
    WorkerInfo,
    catch_all_name,
    is_supervised,
    remote_prefix,
)
from tests.model.making import ID, NOW, faults


@pytest.mark.req("B-9")
@pytest.mark.parametrize(
    ("queue", "type_", "expected"),
    [("q", "known", True), ("q", "other", False), ("r", "known", False), ("all", "other", True)],
)
def test_worker_serves_its_types_and_all_types_of_a_catch_all(
    queue: str, type_: str, expected: bool
) -> None:
    worker = WorkerInfo(
        id="w",
        host="h",
        pid=1,
        queues=("q", "all"),
        types=("known", catch_all_name("all")),
        slots=1,
        running=0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )

    assert expected is worker.serves(queue, type_)


@pytest.mark.req("B-9")
@pytest.mark.parametrize(
    ("fields", "field"),
    [({"type": "a: b"}, "type"), ({"type": "t", "queue": "{mail}"}, "queue")],
)
def test_names_of_bullmq_are_accepted_only_where_the_store_takes_them(
    fields: dict[str, object], field: str
) -> None:
    assert [(field, "INVALID")] == faults(**fields)
    submission = Submission(**{"type": "t", **fields})
    accepted = accept(submission, job_id=ID, now=NOW, defaults=Defaults(any_name=True))
    assert fields[field] == getattr(accepted, field)
    assert [("queue", "INVALID")] == faults(defaults=Defaults(any_name=True), type="t", queue="a:b")


def test_name_tells_whether_a_supervisor_watches_over_a_worker() -> None:
    assert is_supervised("host-supervised-12-ab")
    assert not is_supervised("host-12-ab")


def test_locks_of_workers_over_http_differ_by_namespace() -> None:
    assert "worker/acme:" == remote_prefix("acme")
    assert not remote_prefix("acme").startswith(PREFIX)


@pytest.mark.req("B-9")
@pytest.mark.parametrize(("host", "expected"), [("web-1", False), ("", True)])
def test_worker_over_http_has_no_host(host: str, expected: bool) -> None:
    worker = WorkerInfo(
        id="w", host=host, pid=1, queues=(), types=(), slots=1, running=0, started_at=NOW
    )

    assert expected is worker.is_remote
