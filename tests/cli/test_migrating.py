"""``holdfast migrate``, and that no other command creates a schema."""

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
SCHEMA = "cli_migrate"
ALL = [migration.title for migration in known()]


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        yield f"{postgres_server.dsn}?schema={SCHEMA}"
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _schema_exists(url: str) -> bool:
    with psycopg.connect(url.partition("?")[0]) as connection:
        found = connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone()
    return found != (None,)


def test_migrate_reports_what_it_applied(place: Place, url: str) -> None:
    first = place.run("migrate", "--url", url)
    second = place.run("migrate", "--url", url)

    assert f"{url}: applied {', '.join(ALL)}\n" == first.stdout
    assert f"{url} is up to date\n" == second.stdout


def test_migrate_ignores_migrate_false_in_the_url(place: Place, url: str) -> None:
    result = place.run("migrate", "--url", f"{url}&migrate=false")

    assert 0 == result.exit_code, result.stderr
    assert "applied" in result.stdout


def test_status_shows_what_is_pending_and_changes_nothing(place: Place, url: str) -> None:
    before = place.json("migrate", "--status", "--url", url)
    assert not _schema_exists(url)
    place.run("migrate", "--to", "2", "--lose-data", "--url", url)

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


def test_migrate_goes_up_and_down_to_a_version(place: Place, url: str) -> None:
    forward = place.json("migrate", "--to", "2", "--lose-data", "--url", url)
    onward = place.json("migrate", "--url", url)
    back = place.json("migrate", "--to", "2", "--lose-data", "--url", url)
    shown = place.run("migrate", "--to", "3", "--url", url).stdout

    assert (ALL[:2], [], "PENDING") == (forward["up"], forward["down"], forward["status"])
    assert (ALL[2:], [], "UP_TO_DATE") == (onward["up"], onward["down"], onward["status"])
    assert ([], ALL[:1:-1], 2) == (back["up"], back["down"], back["version"])
    assert f"{url}: applied {ALL[2]}\n" == shown


def test_migrating_down_with_data_loss_needs_a_flag(place: Place, url: str) -> None:
    place.run("migrate", "--url", url)

    refused = place.run("migrate", "--to", "0", "--url", url)
    result = place.run("migrate", "--to", "0", "--lose-data", "--url", url)

    assert 2 == refused.exit_code
    assert "going back to version 0 loses" in refused.stderr
    assert "all jobs" in refused.stderr
    assert "--lose-data" in refused.stderr
    assert f"{url}: reverted {', '.join(reversed(ALL))}\n" == result.stdout


@pytest.mark.parametrize("version", ["-1", "99", "x"])
def test_unknown_version_is_a_usage_error(place: Place, url: str, version: str) -> None:
    result = place.run("migrate", "--to", version, "--url", url)

    assert 2 == result.exit_code
    assert not _schema_exists(url)


@pytest.mark.parametrize("option", [("--to", "1"), ("--status",)])
def test_store_without_versions_is_a_usage_error(place: Place, option: tuple[str, ...]) -> None:
    result = place.run("migrate", *option, "--url", place.url)

    assert 2 == result.exit_code
    assert "only a PostgreSQL store has versions to list or choose" in result.stderr


@pytest.mark.parametrize("command", ["migrate", "jobs"])
def test_missing_permission_is_reported_in_one_line(place: Place, url: str, command: str) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute("CREATE ROLE unprivileged LOGIN")
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        try:
            result = place.run(command, "--url", url.replace("postgres@", "unprivileged@"))
        finally:
            connection.execute("DROP ROLE unprivileged")

    assert 3 == result.exit_code
    assert f"holdfast: PostgreSQL: permission denied for schema {SCHEMA}" in result.stderr
    assert 1 == len(result.stderr.splitlines())


COMMANDS = [
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


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_on_a_missing_schema_creates_none(
    place: Place, url: str, command: tuple[str, ...]
) -> None:
    result = place.run(*command, "--url", url)

    assert 3 == result.exit_code
    assert f"no store in schema '{SCHEMA}': run holdfast migrate" in result.stderr
    assert not _schema_exists(url)


def test_copy_from_a_missing_schema_creates_none(place: Place, url: str) -> None:
    result = place.run("copy", url, f"sqlite:///{place.path}/new.db")

    assert 3 == result.exit_code
    assert not _schema_exists(url)


def test_reading_does_not_migrate(place: Place, url: str) -> None:
    place.run("migrate", "--to", "2", "--lose-data", "--url", url)

    result = place.run("jobs", "--url", url)

    assert 3 == result.exit_code
    assert "lacks migration 0003_births: run holdfast migrate" in result.stderr
    assert 2 == place.json("migrate", "--status", "--url", url)["version"]


def test_submit_creates_the_schema(place: Place, url: str) -> None:
    job = place.json("submit", "greet", "--url", url)

    assert (
        job["job_id"]
        == json.loads(place.run("jobs", "--json", "--url", url).stdout)["jobs"][0]["job_id"]
    )
