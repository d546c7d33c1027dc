"""The pages of the reference say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import metrics_page
from tests.docs.reference import PAGES, render


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_up_to_date(page: Path) -> None:
    assert PAGES[page]() == page.read_text("utf-8"), "run python -m tests.docs.reference"


def test_every_option_says_what_it_means() -> None:
    rows = re.findall(r"^\| `.*\| (.*?) ?\|$", render(), re.MULTILINE)

    assert len(rows) > 80
    assert [] == [row for row in rows if not row or row.startswith("One of")]


def test_labels_of_the_metrics_of_the_service_are_those_of_their_samples() -> None:
    documented = {
        name: {label.partition(":")[0] for label in labels.split(", ")}
        for name, labels in metrics_page.LABELS.items()
    }

    found = dict(metrics_page.samples(metrics_page.scraped()))

    assert len(found) > 10
    assert [] == [name for name, labels in found.items() if labels - documented.get(name, set())]
