"""URLs of stores, as they are written and as others need them."""

from __future__ import annotations

import pytest

from holdfast.cli.common import opened_as_is
from holdfast.store import urls
from holdfast.store.postgres import PostgresSettings


@pytest.mark.parametrize(
    ("url", "longer"),
    [
        ("postgresql://u:p@h/app", "postgresql://u:p@h/app?a=1"),
        ("postgresql://u:p@h/app?schema=x", "postgresql://u:p@h/app?schema=x&a=1"),
        ("postgresql://u:a?b@h/app", "postgresql://u:a?b@h/app?a=1"),
        ("postgresql://u:a?b@h/app?schema=x", "postgresql://u:a?b@h/app?schema=x&a=1"),
        ("postgresql:///app?host=/run&listen_url=postgresql://u@h/x", None),
        ("redis://h:6379/0", "redis://h:6379/0?a=1"),
    ],
)
def test_option_is_added_where_options_are(url: str, longer: str | None) -> None:
    assert (longer or f"{url}&a=1") == urls.with_option(url, "a=1")


@pytest.mark.parametrize("url", ["postgresql://u:a?b@h/app", "POSTGRES://u:a?b@h/app?schema=x"])
def test_store_that_is_only_read_is_not_migrated(url: str) -> None:
    given = PostgresSettings.from_url(url)
    opened = PostgresSettings.from_url(opened_as_is(url, "--url"))

    assert not opened.migrate
    assert (given.dsn, given.schema) == (opened.dsn, opened.schema)
