"""Settings in layers: which value applies, what is refused, and with which message."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, Limits, ValidationError, config
from holdfast.model.policy import Retention
from holdfast.model.profiles import BULLMQ, DOCUMENT, LEASE
from holdfast.operations.environment import APP_SETTINGS, as_text, variable
from holdfast.webhooks import WebhookSettings
from tests.architecture import tree


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "holdfast.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_later_layers_override_earlier_ones_only_with_values_they_give(tmp_path: Path) -> None:
    path = _file(tmp_path, 'url = "sqlite:///file.db"\n[worker]\nslots = 7\nprocesses = 3\n')
    environment = {"HOLDFAST_WORKER_SLOTS": "8", "HOLDFAST_LOG_LEVEL": "debug"}

    found = config.load(
        flags={"log.level": "error", "worker.slots": None}, environment=environment, path=path
    )

    assert ("sqlite:///file.db", path) == (found["url"], found.source("url"))
    assert (8, "$HOLDFAST_WORKER_SLOTS") == (
        found["worker.slots"],
        found.source("worker.slots"),
    )
    assert (3, "error", "flag") == (
        found["worker.processes"],
        found["log.level"],
        found.source("log.level"),
    )
    assert (timedelta(seconds=30), "default") == (
        found["worker.grace"],
        found.source("worker.grace"),
    )


def test_value_that_equals_the_default_still_counts_as_given(tmp_path: Path) -> None:
    path = _file(tmp_path, "[worker]\nslots = 99\n")

    found = config.load(environment={"HOLDFAST_WORKER_SLOTS": "20"}, path=path)

    assert (20, "$HOLDFAST_WORKER_SLOTS") == (found["worker.slots"], found.source("worker.slots"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[worker]\nslot = 3\n", "worker.slot is not a setting, did you mean 'worker.slots'?"),
        ("slots = 3\n", "slots is not a setting, did you mean 'worker.slots'?"),
        ('colour = "red"\n', "colour is not a setting: known are url, app,"),
        ("[worker]\nslots = 0\n", "worker.slots must be a whole number from 1, got 0"),
        ("[worker]\nslots = true\n", "worker.slots must be a whole number from 1, got True"),
        ('[log]\nlevel = "loud"\n', "log.level must be one of debug, info, warning, error"),
        ('[worker]\ngrace = "soon"\n', "worker.grace must be a duration"),
        (
            '[worker]\nqueues = ["a:b"]\n',
            "worker.queues must be 1 to 128 characters without a colon",
        ),
        ("url = \n", "cannot be read"),
    ],
)
def test_invalid_file_is_refused_with_the_nearest_known_key(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        config.load(environment={}, path=_file(tmp_path, text))

    assert message in str(caught.value)


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    path = _file(tmp_path, "[worker]\nslot = 3\nprocesses = 0\n")

    with pytest.raises(ValidationError) as caught:
        config.load(environment={"HOLDFAST_LOG_LEVEL": "loud"}, path=path)

    assert 3 == len(caught.value.faults)


def test_variable_that_looks_like_a_typo_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"did you mean \$HOLDFAST_WORKER_SLOTS"):
        config.load(environment={"HOLDFAST_WORKER_SLOT": "3"})


def test_variables_of_container_platforms_are_ignored() -> None:
    platform = {"HOLDFAST_PORT": "tcp://10.0.0.1:80", "HOLDFAST_SERVICE_HOST": "10.0.0.1"}
    platform |= {"HOLDFAST_WORKER_PORT": "tcp://10.0.0.2:80", "HOLDFAST_URLS_PORT": "udp://x:1"}

    found = config.load(environment=platform)

    assert {"default"} == {one.source for one in found.all()}


def test_missing_file_is_an_error_only_when_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert "default" == config.load(environment={}).source("url")
    with pytest.raises(ValidationError, match="cannot be read"):
        config.load(environment={"HOLDFAST_CONFIG": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (["a", "b,c"], ["a", "b", "c"]),
        ("a=3,b", {"a": 3.0, "b": 1.0}),
        (["a=0.5"], {"a": 0.5}),
    ],
)
def test_queues_are_an_order_or_weights(given: object, read: object) -> None:
    assert read == config.read_queues(given)


@pytest.mark.parametrize("given", ["", "a,,b", "a=x", "a=0", "a=-1", "a=nan", "a=inf", "a:b", 3])
def test_invalid_queues_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="must"):
        config.read_queues(given)


APP_FILE = """
[profiles]
mail = "lease"
"acme/q" = "document"

[limits]
payload_bytes = 2000
timeout = "PT1M"
queue_depth = 5

[retention]
completed = "forever"
failed = 60

[webhooks]
allow = ["http", "ports"]
timeout = 3
max_attempts = 4
"""


def test_file_gives_the_settings_of_an_app(tmp_path: Path) -> None:
    found = config.for_app(config.load(environment={}, path=_file(tmp_path, APP_FILE)))

    assert {"mail": LEASE, "acme/q": DOCUMENT} == found.profiles
    assert Limits(payload_bytes=2000, timeout=timedelta(minutes=1), queue_depth=5) == found.limits
    assert Retention(completed=None, failed=timedelta(minutes=1)) == found.retention
    assert (("http", "ports"), timedelta(seconds=3), 4) == (
        *(found.webhooks.allow, found.webhooks.timeout, found.webhooks.max_attempts),
    )


def test_settings_of_an_app_without_values_are_those_of_the_library() -> None:
    found = config.for_app(config.load(environment={}))

    assert (Limits(), Retention(), WebhookSettings(), {}) == (
        *(found.limits, found.retention, found.webhooks, found.profiles),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[profiles]\nmail = "fast"\n', "profiles must give queue 'mail' one of standard, lease,"),
        ('[profiles]\n"a:b" = "lease"\n', "profiles must name queues without a colon"),
        ("[profiles]\nmail = 3\n", "profiles must give queue 'mail' one of"),
        ("profiles = 3\n", "profiles must be text, got 3"),
        ("[limits]\npayload_bytes = 17000000\n", "must be at most 16777216, got 17000000"),
        ("[limits]\npayload_bytes = 0\n", "limits.payload_bytes must be a whole number from 1"),
        ("[limits]\ntimeout = 0\n", "limits.timeout must be longer than 0 s"),
        ('[retention]\nfailed = "ever"\n', "or 'forever'"),
        ("[retention]\nended = 3\n", "retention.ended is not a setting"),
        ("[webhooks]\nmax_attempts = 101\n", "webhooks.max_attempts must be at most 100, got 101"),
        ('[webhooks]\ntimeout = "soon"\n', "webhooks.timeout must be a duration"),
    ],
)
def test_wrong_settings_of_an_app_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        config.load(environment={}, path=_file(tmp_path, text))

    assert message in str(caught.value)


def test_app_takes_from_the_environment_what_its_code_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.load(environment={}, path=_file(tmp_path, APP_FILE))
    for key in APP_SETTINGS:
        if settings.source(key) != "default":
            monkeypatch.setenv(variable(key), as_text(settings[key]))

    plain = Holdfast("memory://")
    own = Holdfast(
        "memory://",
        queues={"mail": "bullmq"},
        limits=Limits(batch=3),
        retention=Retention(failed=None),
        webhooks=WebhookSettings(max_attempts=2),
    )

    expected = config.for_app(settings)
    assert (expected.limits, expected.retention, expected.webhooks, expected.profiles) == (
        *(plain.limits, plain.retention, plain.webhook_settings, plain.registry.profiles),
    )
    assert (Limits(batch=3), Retention(failed=None), 2) == (
        *(own.limits, own.retention, own.webhook_settings.max_attempts),
    )
    assert {"mail": BULLMQ, "acme/q": DOCUMENT} == own.registry.profiles


def test_wrong_variables_of_an_app_are_refused_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_PROFILES", "mail")
    monkeypatch.setenv("HOLDFAST_RETENTION_FAILED", "never")

    with pytest.raises(ValidationError) as caught:
        Holdfast("memory://")

    assert ["$HOLDFAST_PROFILES", "$HOLDFAST_RETENTION_FAILED"] == [
        fault.field for fault in caught.value.faults
    ]


def test_every_setting_is_documented() -> None:
    page = (tree.ROOT / "docs" / "reference-settings.md").read_text("utf-8")

    assert [] == [key for key in config.SETTINGS if f"`{key}`" not in page]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_file_that_every_user_can_write_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, 'url = "sqlite:///file.db"\n')
    Path(path).chmod(0o646)

    with pytest.raises(ValidationError, match=f"chmod o-w {path}") as refused:
        config.load(environment={}, path=path)

    assert ["EXPOSED"] == [fault.code for fault in refused.value.faults]
    Path(path).chmod(0o644)
    assert "sqlite:///file.db" == config.load(environment={}, path=path)["url"]
