"""What an operation selected, as the search that finds the same jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.dashboard.findings import shown_finding
from holdfast.dashboard.search import parse
from holdfast.dashboard.selections import selection_of
from holdfast.model.bulk import BulkAction, BulkOperation
from holdfast.store import Finding, Level

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def operation(**changes: Any) -> BulkOperation:
    fields = {"as_of": NOW, "created_at": NOW, "updated_at": NOW, **changes}
    return BulkOperation(id="1", action=BulkAction.RETRY, **fields)


@pytest.mark.parametrize(
    "text",
    [
        "state:failed,dead-letter type:email.send,report.* queue:mail",
        'tag.tenant:"acme inc" tag.region:eu priority:high,low',
        "correlation:order-1 code:SMTP_TIMEOUT worker:web-* group:0a1b",
        "after:2026-11-16T00:00:00+00:00 changed:2026-11-17T00:00:00+00:00 code:HTTP_*",
    ],
)
def test_selection_of_a_filter_is_the_search_that_made_it(text: str) -> None:
    search = parse(text, now=NOW)

    selection = selection_of(operation(filter=search.filter))

    assert search.filter == parse(selection.query, now=NOW).filter
    assert selection.words == selection.query


def test_selection_without_a_search_is_in_words() -> None:
    assert "3 jobs selected by hand" == selection_of(operation(id_count=3)).words
    assert "all jobs" == selection_of(operation(filter={})).words
    unknown = selection_of(operation(filter={"new": "filter", "queues": ["mail"]}))
    assert ("queue:mail", "") == (unknown.words, unknown.query)


def test_finding_leads_to_where_one_acts_and_shows_commands_as_code() -> None:
    finding = Finding("queue", Level.WARN, "12345 ready jobs.", "Say `holdfast x`.", queue="mail")

    shown = shown_finding(finding)

    assert "12\u202f345 ready jobs." == shown.text
    assert (("Say ", False), ("holdfast x", True), (".", False)) == shown.advice
    assert ("Open mail", ("queues", "mail")) == (shown.label, shown.path)


@pytest.mark.parametrize(
    ("name", "query"), [("dead letters", "state:dead-letter"), ("due", "state:delayed,retrying")]
)
def test_finding_about_jobs_leads_to_them(name: str, query: str) -> None:
    assert query == shown_finding(Finding(name, Level.WARN, "Some jobs.")).query
