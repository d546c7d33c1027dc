"""``holdfast verify`` on the store of a place."""

from __future__ import annotations

import json
import sqlite3

from tests.cli.conftest import Place


def test_sound_store_is_told_to_be_so(place: Place) -> None:
    place.submit("greet", '{"name": "you"}')
    place.work()

    told = place.json("verify", place.url)
    shown = place.run("verify")

    assert (1, {"COMPLETED": 1}) == (told["jobs"], told["states"])
    assert not any(told["counts"].values())
    assert 0 == shown.exit_code
    assert shown.stdout.endswith("no promise was broken\n")


def test_broken_promise_is_named_with_its_job_and_fails(place: Place) -> None:
    job_id = place.submit("greet", '{"name": "you"}')
    place.work()
    with sqlite3.connect(place.path / "holdfast.db") as connection:
        connection.execute("UPDATE journal SET lease_version = 7 WHERE event = 'complete'")
    connection.close()

    shown = place.run("verify")
    told = place.run("verify", "--json")

    assert 1 == shown.exit_code == told.exit_code
    assert "FAIL  stale write: 1" in shown.stdout
    assert f"stale write: {job_id} complete under claim 7" in shown.stdout
    assert 1 == json.loads(told.stdout)["counts"]["stale write"]


def test_store_that_is_not_there_is_not_created(place: Place) -> None:
    assert 3 == place.run("verify", f"sqlite:///{place.path}/other.db").exit_code
    assert not (place.path / "other.db").exists()
