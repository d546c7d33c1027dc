"""Writes docs/reference-settings.md from the settings: every key, variable, flag and default."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.cli import app_options, cli, service_options
from holdfast.config import SETTINGS
from holdfast.operations.environment import variable
from tests.architecture import tree

PAGE = tree.ROOT / "docs" / "reference-settings.md"
HEAD = """# Settings

holdfast reads `holdfast.toml` in the current directory (or the file in `$HOLDFAST_CONFIG`).
`HOLDFAST_*` variables override the file, and flags override the variables. Unknown keys are errors.
`holdfast config` shows the effective settings and the source of each one. A file that every user of
the machine can write is refused (`chmod o-w holdfast.toml`); Windows has no such check.

```toml
url = "postgresql://app@db/app"
app = "shop.jobs:app"

[worker]
queues = ["critical=5", "default=1"]
slots = 50
processes = 4
grace = "PT1M"

[log]
format = "json"

[profiles]
mail = "lease"

[limits]
payload_bytes = 2_000_000

[retention]
completed = "P1D"
dead_letter = "forever"
```

In a variable, profiles are `HOLDFAST_PROFILES=mail=lease,jobs=document`, and lists have commas. A
duration is a number of seconds or ISO 8601. Flags are those of `holdfast worker` and
`holdfast serve`; `--url` belongs to every command.

`Holdfast(...)` takes profiles, limits, retention and webhook settings from the variables where the
code gives none, also without the command line; the commands pass it what the file and flags give. A
flag for what the code of the app gives is an error. Give the worker and the service the same file:
each applies its own limits, and the one that leads maintenance its retention.

`python -m tests.docs.reference` generates this page from the settings themselves.
"""
TITLES = {
    "": "Store and app",
    "encryption": "Encryption",
    "profiles": "",
    "limits": "Limits",
    "retention": "Retention",
    "webhooks": "Webhooks",
    "redact": "Logs",
    "log": "",
    "listen": "Listening",
    "service": "Shares of the service",
    "worker": "Workers",
}
"""The heading of each group; an empty one continues the group before it."""
NOTES = {
    "profiles": "see [profiles](submitting.md#submit-without-the-code)",
    "limits.payload_bytes": "at most 16 MiB",
    "limits.queue_depth": "see [limits](limits.md)",
    "retention.completed": "or `forever`, as for the others",
    "webhooks.allow": "`http`, `ports`, `private` or networks, see [webhooks](webhooks.md)",
    "encryption.keys": "see [encryption](encryption.md)",
    "listen.connections": "see [connections](http.md#connections)",
    "service.requests_per_key": "see [shares](http.md#shares-of-the-service)",
    "worker.slots": "see [workers](workers.md#how-many-jobs-run-at-once)",
    "worker.environment": "see [workers](workers.md#run-cpu-bound-work)",
    "worker.probe": "see [metrics](metrics.md)",
}
OTHERS = """
## Other variables

| variable | meaning |
| --- | --- |
| `HOLDFAST_CONFIG` | the file to read instead of `holdfast.toml` |
| `HOLDFAST_API_KEY` | the key that clients and commands show to a service |
| `HOLDFAST_APP_VERSION` | what workers report as the version of your program |
| `SSL_CERT_FILE` | certificate authorities that clients trust, instead of those of the machine |
| `NO_COLOR` | commands print without colours |

The URL of a store has settings of its own: [SQLite](sqlite.md),
[PostgreSQL](postgres.md#url-parameters), [Redis and Valkey](redis.md#settings-in-the-url).
"""


def render() -> str:
    """Return the page."""
    lines = [HEAD]
    open_group = None
    for key, setting in SETTINGS.items():
        group = key.partition(".")[0] if "." in key or key == "profiles" else ""
        if group != open_group:
            open_group = group
            if title := TITLES[group]:
                lines += _heading(title, first=len(lines) == 1)
        note = f"; {NOTES[key]}" if key in NOTES else ""
        flag, default = flag_of(key), _shown(setting.default)
        cells = [f"`{key}`", f"`{variable(key)}`", flag, default, setting.help + note]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(lines) + "\n" + OTHERS


def flag_of(key: str) -> str:
    """Return the flag for a setting, as the commands declare it; empty where there is none."""
    if key in app_options.OPTIONS:
        flag = app_options.OPTIONS[key][0]
    elif key in service_options.OPTIONS:
        flag = f"--{key.partition('.')[2].replace('_', '-')}"
    elif key == "app":
        return "`MODULE:APP`"
    else:
        group, _, name = key.rpartition(".")
        flag = f"--{group}-{name}" if group == "log" else f"--{name}"
    return f"`{flag}`" if flag in _flags() else ""


def _flags() -> set[str]:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in ("worker", "serve")]
    return {
        name
        for command in commands
        if command is not None
        for param in command.params
        for name in param.opts
    }


def _heading(title: str, *, first: bool) -> list[str]:
    row = "| key | variable | flag | default | meaning |"
    head = [f"## {title}", "", row, "| --- | --- | --- | --- | --- |"]
    return head if first else ["", *head]


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case timedelta():
            return _span(value)
        case list():
            return ", ".join(f"`{one}`" for one in value)
        case int():
            return _size(value)
        case _:
            return f"`{value}`"


def _size(value: int) -> str:
    for unit, name in ((1024**2, "MiB"), (1024, "KiB")):
        if value % unit == 0:
            return f"{value // unit} {name}"
    return str(value)


def _span(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    for unit, name in ((86_400, "days"), (60, "min")):
        if seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
