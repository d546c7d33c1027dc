"""``holdfast verify``."""

from __future__ import annotations

import json
import sqlite3

from tests.cli.conftest import Place


def test_verify_of_a_sound_store_succeeds(place: Place) -> None:
    place.submit("greet", '{"name": "you"}')
    place.work()

    document = place.json("verify", place.url)
    shown = place.run("verify")

    assert (1, {"COMPLETED": 1}) == (document["jobs"], document["states"])
    assert not any(document["counts"].values())
    assert 0 == shown.exit_code
    assert shown.stdout.endswith("no promise was broken\n")


def test_broken_promise_is_reported_with_its_job_and_fails(place: Place) -> None:
    job_id = place.submit("greet", '{"name": "you"}')
    place.work()
    with sqlite3.connect(place.path / "holdfast.db") as connection:
        connection.execute("UPDATE journal SET lease_version = 7 WHERE event = 'complete'")
    connection.close()

    shown = place.run("verify")
    result = place.run("verify", "--json")

    assert 1 == shown.exit_code == result.exit_code
    assert "FAIL  stale write: 1" in shown.stdout
    assert f"stale write: {job_id} complete under claim 7" in shown.stdout
    assert 1 == json.loads(result.stdout)["counts"]["stale write"]


def test_verify_does_not_create_a_missing_store(place: Place) -> None:
    assert 3 == place.run("verify", f"sqlite:///{place.path}/other.db").exit_code
    assert not (place.path / "other.db").exists()
