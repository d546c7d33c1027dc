"""Options of ``holdfast serve`` for what a connection and a key may use of the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

OPTIONS = {
    "listen.connections": ("N", "Open connections.  [1000]"),
    "listen.connections_per_address": ("N", "Open connections from one address.  [250]"),
    "listen.header_bytes": ("BYTES", "A request line and its headers.  [32 KiB]"),
    "listen.target_bytes": ("BYTES", "A path and its query.  [16 KiB]"),
    "listen.headers": ("N", "Headers of a request.  [100]"),
    "listen.header_timeout": ("SPAN", "The longest time for headers.  [10 s]"),
    "listen.idle_timeout": ("SPAN", "The longest time between two requests.  [30 s]"),
    "listen.body_timeout": ("SPAN", "The longest time for a body.  [30 s]"),
    "listen.write_timeout": ("SPAN", "How long a client may read nothing.  [30 s]"),
    "service.requests_per_key": ("N", "Requests of one key handled at once.  [64]"),
    "service.waiting_per_key": ("N", "Requests of one key that wait for their turn.  [1000]"),
    "service.streams_per_key": ("N", "Open event streams of one key.  [100]"),
    "service.long_polls_per_key": ("N", "Long polls of one key.  [1000]"),
    "service.bytes_per_key": ("BYTES", "Bodies of one key at a time.  [64 MiB]"),
    "service.bytes": ("BYTES", "Bodies of all keys at a time.  [256 MiB]"),
    "service.queues_per_namespace": ("N", "Names of queues of a namespace.  [1000]"),
    "service.types_per_namespace": ("N", "Names of job types of a namespace.  [1000]"),
    "service.tags_per_namespace": ("N", "Names of tags of a namespace.  [1000]"),
    "service.workers_per_namespace": ("N", "Workers over HTTP of a namespace.  [1000]"),
}
"""The placeholder and the help of each setting; the flag has its name."""


def service_options(command: F) -> F:
    """Add the options to a command."""
    for key, (metavar, text) in reversed(OPTIONS.items()):
        flag = f"--{key.partition('.')[2].replace('_', '-')}"
        command = click.option(flag, _name(key), metavar=metavar, help=text)(command)
    return command


def service_flags(given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that these options of a command give."""
    return {key: given.get(_name(key)) for key in OPTIONS}


def _name(key: str) -> str:
    return key.replace(".", "_")
