"""Options for the settings of an app, which the commands that run one share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

OPTIONS = {
    "profiles": ("--profile", "QUEUE=NAME", "The profile of a queue; may be repeated."),
    "limits.payload_bytes": ("--payload-limit", "BYTES", "The largest payload.  [1048576]"),
    "limits.timeout": ("--timeout-limit", "SPAN", "The longest attempt.  [30 min]"),
    "retention.completed": ("--keep-completed", "SPAN", "Keep completed jobs.  [7 days]"),
    "retention.failed": ("--keep-failed", "SPAN", "Keep failed jobs.  [30 days]"),
    "retention.dead_letter": ("--keep-dead-letter", "SPAN", "Keep dead letters.  [90 days]"),
    "retention.cancelled": ("--keep-cancelled", "SPAN", "Keep cancelled jobs.  [7 days]"),
    "webhooks.allow": ("--webhooks-allow", "A,B", "Allow http, ports, private or networks."),
    "webhooks.timeout": ("--webhooks-timeout", "SPAN", "The longest delivery.  [10 s]"),
    "webhooks.max_attempts": ("--webhooks-attempts", "N", "Attempts to deliver.  [12]"),
}
"""The flag, the placeholder and the help of each setting."""


def app_options(command: F) -> F:
    """Add the options for the settings of an app to a command."""
    for key, (flag, metavar, text) in reversed(OPTIONS.items()):
        option = click.option(
            flag, _name(key), metavar=metavar, help=text, multiple=key == "profiles"
        )
        command = option(command)
    return command


def app_flags(given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that these options of a command give."""
    found = {key: given.get(_name(key)) for key in OPTIONS}
    return {key: None if value == () else value for key, value in found.items()}


def others(given: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a command that are not for the app."""
    names = {_name(key) for key in OPTIONS}
    return {name: value for name, value in given.items() if name not in names}


def _name(key: str) -> str:
    return f"app_{key.replace('.', '_')}"
