"""The page about the command line says what the commands say."""

from __future__ import annotations

import re

import pytest


def test_page_is_up_to_date() -> None:
    assert render() == PAGE.read_text("utf-8"), "run python -m tests.docs.reference"


def test_every_option_says_what_it_means() -> None:
    rows = re.findall(r"^\| `.*\| (.*?) ?\|$", render(), re.MULTILINE)

    assert len(rows) > 80
    assert [] == [row for row in rows if not row or row.startswith("One of")]
