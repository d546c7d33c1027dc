"""What the doctor finds, as pages show it: a sentence, where to act on it, and commands as code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
    alike: tuple[ShownFinding, ...] = ()
    """The first of those that it stands for; empty: it is one finding."""
    count: int = 1
    """How many findings it stands for."""


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


SEPARATE = 3
"""So many findings of one check are shown one by one; more become one."""
FIRST = 5
_KINDS = {
    "workers": "kinds of ready jobs have no worker that takes them",
    "queue": "paused queues have ready jobs",
    "threads": "workers have threads that go on after a timeout",
    "versions": "types of jobs wait for a worker of another version",
    "quarantine": "items were set aside because they cannot be read",
    "services": "maintenance services fail again and again",
}


def shown_findings(findings: Sequence[Finding]) -> tuple[ShownFinding, ...]:
    """Return findings as a page shows them: many of one check and level are one."""
    checks: dict[tuple[str, Level], list[Finding]] = {}
    for each in findings:
        checks.setdefault((each.name, each.level), []).append(each)
    return tuple(shown for found in checks.values() for shown in _shown(found))


def _shown(found: Sequence[Finding]) -> Iterator[ShownFinding]:
    """Yield what is shown for the findings of one check."""
    if len(found) <= SEPARATE:
        yield from map(shown_finding, found)
        return
    first = found[0]
    yield ShownFinding(
        name=first.name,
        text=f"{count(len(found))} {_KINDS.get(first.name, f'findings about {first.name}')}.",
        is_error=first.level is Level.ERROR,
        advice=(),
        alike=tuple(map(shown_finding, found[:FIRST])),
        count=len(found),
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
