"""What the doctor finds, as pages show it: a sentence, where to act on it, and commands as code."""

from __future__ import annotations

import re

import msgspec

from holdfast.dashboard.formats import count
from holdfast.store import Finding, Level

_NUMBER = re.compile(r"(?<!\S)\d{4,18}(?!\S)", re.ASCII)


class ShownFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a page."""

    name: str
    text: str
    is_error: bool
    advice: tuple[tuple[str, bool], ...]
    """What to do: its parts, and whether each is a command."""
    label: str = ""
    """The words of the link to where one acts; empty: there is no such place."""
    path: tuple[str, ...] = ()
    query: str = ""
    """What the list of jobs searches."""


def shown_finding(finding: Finding) -> ShownFinding:
    """Return a finding as a page shows it."""
    label, path, query = _place(finding)
    parts = finding.advice.split("`")
    return ShownFinding(
        name=finding.name,
        text=_NUMBER.sub(lambda found: count(int(found[0])), finding.text),
        is_error=finding.level is Level.ERROR,
        advice=tuple((text, at % 2 == 1) for at, text in enumerate(parts) if text),
        label=label,
        path=path,
        query=query,
    )


_SEARCHES = {
    "dead letters": "state:dead-letter",
    "leases": "state:running",
    "due": "state:delayed,retrying",
    "dependencies": "state:waiting",
}


def _place(finding: Finding) -> tuple[str, tuple[str, ...], str]:
    """Return where one acts on a finding: the words, the path and the search of the jobs."""
    if finding.queue:
        return f"Open {finding.queue}", ("queues", finding.queue), ""
    if finding.name == "versions":
        return "Show the jobs", ("jobs",), f"state:retrying type:{finding.type}"
    if finding.name in _SEARCHES:
        return "Show the jobs", ("jobs",), _SEARCHES[finding.name]
    if finding.name in ("threads", "maintenance"):
        return "Show the workers", ("workers",), ""
    return "", (), ""
