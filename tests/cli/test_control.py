"""``holdfast limits``, ``workers`` and pauses with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Place


def test_limits_are_set_listed_and_lifted(place: Place) -> None:
    place.submit("greet")

    made = place.json("limits", "set", "task:greet", "--rate", "5", "--per", "60", "--burst", "3")
    (listed,) = place.json("limits")
    shown = place.run("limits").output
    lifted = place.run("limits", "lift", "task:greet").output

    assert made == listed
    assert "5 per 60 s, bursts of 3" in shown
    assert "0 of 3" in shown
    assert "task:greet: no limit" == lifted.strip()
    again = place.run("limits", "lift", "task:greet").output
    assert "nothing was set at run time; task:greet: no limit" == again.strip()
    place.run("limits", "set", "task:greet", "--rate", "5", "--per", "1s")
    assert "5 per 1 s" in place.run("limits").output
    assert 2 == place.run("limits", "set", "greet", "--rate", "1").exit_code


def test_queue_is_paused_with_a_reason_for_a_while(place: Place) -> None:
    place.submit("greet")

    place.run("queues", "pause", "default", "--reason", "upgrade", "--for", "3600")
    (queue,) = place.json("queues")
    shown = place.run("queues").output
    scale = place.json("queues", "scale", "default", "--slots", "1")
    both = place.run("queues", "pause", "default", "--until", "2099-01-01", "--for", "5")

    assert "upgrade" == queue["pause"]["reason"]
    assert queue["pause"]["until"]
    assert "(upgrade)" in shown
    assert (1, 1) == (scale["ready"], scale["desired_workers"])
    assert "desired workers" in place.run("queues", "scale", "default").output
    assert 2 == both.exit_code


def test_pause_of_a_queue_that_nobody_uses_says_so(place: Place) -> None:
    place.submit("greet")

    used = place.run("queues", "pause", "default").output
    unused = place.run("queues", "pause", "nope").output

    assert "queue default is paused" == used.strip()
    expected = "no job and no worker has used queue nope; it is paused all the same"
    assert expected == unused.strip()
    assert all(queue["paused"] for queue in place.json("queues"))


def test_unknown_worker_cannot_be_drained(place: Place) -> None:
    place.submit("greet")

    assert 1 == place.run("workers", "drain", "nobody").exit_code
    assert 1 == place.run("workers", "undrain", "nobody").exit_code
    assert [] == place.json("workers")
