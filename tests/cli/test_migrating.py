"""``holdfast migrate``, and that no other command makes a schema by looking at it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.store.postgres.migrate import known
from tests.cli.conftest import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "by_hand"
ALL = [migration.title for migration in known()]


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        yield f"{postgres_server.dsn}?schema={SCHEMA}"
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _is_there(url: str) -> bool:
    with psycopg.connect(url.partition("?")[0]) as connection:
        found = connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone()
    return found != (None,)


def test_migrate_says_what_it_applied(place: Place, url: str) -> None:
    first = place.run("migrate", "--url", url)
    second = place.run("migrate", "--url", url)

    assert f"{url}: applied {', '.join(ALL)}\n" == first.stdout
    assert f"{url} is up to date\n" == second.stdout


def test_migrate_goes_where_it_is_left_to_others(place: Place, url: str) -> None:
    result = place.run("migrate", "--url", f"{url}&migrate=false")

    assert 0 == result.exit_code, result.stderr
    assert "applied" in result.stdout


def test_status_shows_what_is_pending_and_changes_nothing(place: Place, url: str) -> None:
    before = place.json("migrate", "--status", "--url", url)
    assert not _is_there(url)
    place.run("migrate", "--to", "2", "--url", url)

    shown = place.run("migrate", "--status", "--url", url).stdout.splitlines()
    after = place.json("migrate", "--status", "--url", url)

    assert {
        "url": url,
        "status": "PENDING",
        "version": 0,
        "applied": [],
        "pending": ALL,
    } == before
    assert (2, ALL[:2], ALL[2:]) == (after["version"], after["applied"], after["pending"])
    assert "version  2" == shown[1]
    words = [line.split()[-1] for line in shown[-len(ALL) :]]
    assert ["applied"] * 2 + ["pending"] * (len(ALL) - 2) == words


def test_migrate_goes_forward_and_back_to_a_version(place: Place, url: str) -> None:
    forward = place.json("migrate", "--to", "2", "--url", url)
    onward = place.json("migrate", "--url", url)
    back = place.json("migrate", "--to", "2", "--url", url)
    shown = place.run("migrate", "--to", "3", "--url", url).stdout

    assert (ALL[:2], [], "PENDING") == (forward["up"], forward["down"], forward["status"])
    assert (ALL[2:], [], "UP_TO_DATE") == (onward["up"], onward["down"], onward["status"])
    assert ([], ALL[:1:-1], 2) == (back["up"], back["down"], back["version"])
    assert f"{url}: applied {ALL[2]}\n" == shown


def test_way_back_that_loses_data_must_be_asked_for(place: Place, url: str) -> None:
    place.run("migrate", "--url", url)

    refused = place.run("migrate", "--to", "0", "--url", url)
    told = place.run("migrate", "--to", "0", "--lose-data", "--url", url)

    assert 2 == refused.exit_code
    assert "going back to version 0 loses API keys" in refused.stderr
    assert "all jobs" in refused.stderr
    assert "--lose-data" in refused.stderr
    assert f"{url}: reverted {', '.join(reversed(ALL))}\n" == told.stdout


@pytest.mark.parametrize("version", ["-1", "99", "x"])
def test_version_nobody_knows_is_wrong_usage(place: Place, url: str, version: str) -> None:
    result = place.run("migrate", "--to", version, "--url", url)

    assert 2 == result.exit_code
    assert not _is_there(url)


@pytest.mark.parametrize("option", [("--to", "1"), ("--status",)])
def test_store_without_versions_says_so(place: Place, option: tuple[str, ...]) -> None:
    result = place.run("migrate", *option, "--url", place.url)

    assert 2 == result.exit_code
    assert "only a PostgreSQL store has versions to list or choose" in result.stderr


@pytest.mark.parametrize("command", ["migrate", "jobs"])
def test_missing_right_is_one_line(place: Place, url: str, command: str) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute("CREATE ROLE powerless LOGIN")
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        try:
            result = place.run(command, "--url", url.replace("postgres@", "powerless@"))
        finally:
            connection.execute("DROP ROLE powerless")

    assert 3 == result.exit_code
    assert f"holdfast: PostgreSQL: permission denied for schema {SCHEMA}" in result.stderr
    assert 1 == len(result.stderr.splitlines())


LOOKS = [
    ("jobs",),
    ("job", "x"),
    ("explain", "x"),
    ("failures",),
    ("stats",),
    ("queues",),
    ("workers",),
    ("events",),
    ("verify",),
    ("doctor",),
    ("top", "--once"),
    ("webhooks",),
    ("cancel", "x"),
    ("queues", "pause", "x"),
]


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_look_at_a_schema_that_is_not_there_makes_none(
    place: Place, url: str, command: tuple[str, ...]
) -> None:
    result = place.run(*command, "--url", url)

    assert 3 == result.exit_code
    assert f"no store in schema '{SCHEMA}': run holdfast migrate" in result.stderr
    assert not _is_there(url)


def test_copy_from_a_schema_that_is_not_there_makes_none(place: Place, url: str) -> None:
    result = place.run("copy", url, f"sqlite:///{place.path}/new.db")

    assert 3 == result.exit_code
    assert not _is_there(url)


def test_look_does_not_migrate(place: Place, url: str) -> None:
    place.run("migrate", "--to", "2", "--url", url)

    result = place.run("jobs", "--url", url)

    assert 3 == result.exit_code
    assert "lacks migration 0003_births: run holdfast migrate" in result.stderr
    assert 2 == place.json("migrate", "--status", "--url", url)["version"]


def test_submit_makes_the_schema(place: Place, url: str) -> None:
    job = place.json("submit", "greet", "--url", url)

    assert (
        job["job_id"]
        == json.loads(place.run("jobs", "--json", "--url", url).stdout)["jobs"][0]["job_id"]
    )
