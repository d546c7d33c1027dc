"""``holdfast webhooks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Place


@pytest.mark.req("A-19")
def test_webhook_is_added_shown_rotated_and_removed(place: Place) -> None:
    made = place.json(
        "webhooks", "add", "https://example.org/x", "--type", "greet", "--tag", "a=1",
        "--state", "FAILED",
    )  # fmt: skip
    (secret,) = made["secrets"]
    assert secret.startswith("whsec_")

    (listed,) = place.json("webhooks")
    assert (made["id"], ["FAILED"], {"a": "1"}) == (
        listed["id"],
        listed["states"],
        listed["tags"],
    )
    assert secret not in place.run("webhooks").output + place.run("webhooks", "--json").output

    assert not place.json("webhooks", "disable", made["id"])["enabled"]
    assert f"webhook {made['id']} is enabled" in place.run("webhooks", "enable", made["id"]).output
    rotated = place.json("webhooks", "rotate", made["id"])
    assert secret == rotated["secrets"][1]
    assert 0 == place.run("webhooks", "remove", made["id"]).exit_code
    assert [] == place.json("webhooks")
    assert 1 == place.run("webhooks", "remove", made["id"]).exit_code


def test_private_address_is_refused(place: Place) -> None:
    result = place.run("webhooks", "add", "https://169.254.169.254/latest")

    assert 2 == result.exit_code
    assert "not a public address" in result.output


def test_deliveries_and_the_secret_of_callbacks_are_shown(place: Place) -> None:
    assert {"deliveries": [], "next_cursor": None} == place.json("webhooks", "deliveries")
    assert "STATE" in place.run("webhooks", "deliveries").output
    (secret,) = place.json("webhooks", "secret")
    assert [secret] == place.json("webhooks", "secret")
    assert secret in place.json("webhooks", "secret", "--rotate")
    assert 1 == place.run("webhooks", "resend", "nothing").exit_code


@pytest.mark.req("A-19")
@pytest.mark.slow
def test_command_refuses_the_address_unless_the_environment_allows_it(place: Place) -> None:
    refused = place.process("submit", "t", "--callback-url", "https://localhost/")
    allowed = place.process(
        "submit",
        "t",
        "--callback-url",
        "https://localhost/",
        HOLDFAST_WEBHOOKS_ALLOW="private",
    )

    assert 2 == refused.returncode
    assert "callback_url: is refused: localhost resolves to" in refused.stderr
    assert 0 == allowed.returncode, allowed.stderr
