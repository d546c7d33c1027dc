"""Write docs/conformance.md: which tests show which requirement, and on which stores.

Run as `python -m tests.conformance_table`; with `--check` only compare.
"""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.requirements import REQUIREMENTS, STORES, shown_by, stores_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"
INTRODUCTION = """\
# Conformance

Which tests show which requirement, and on which stores they run. Generated from the marks in the
test suite by `make conformance`; `make check` fails when this page is out of date. A test is
listed under a requirement when it would fail if the behaviour were removed. *pure* tests need no
store.
"""


@dataclass
class Evidence:
    """The tests of one requirement by file, parametrisations folded, and where they run."""

    tests: dict[str, set[str]] = field(default_factory=dict)
    stores: set[str] = field(default_factory=set)

    def add(self, item: pytest.Item) -> None:
        file, _, name = item.nodeid.partition("::")
        self.tests.setdefault(file, set()).add(name.partition("[")[0])
        self.stores |= stores_of(item) or {"pure"}

    @property
    def count(self) -> int:
        return sum(map(len, self.tests.values()))

    @property
    def where(self) -> str:
        return ", ".join(name for name in ("pure", *STORES) if name in self.stores)


class _Collector:
    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def collect() -> list[pytest.Item]:
    """Every test of the suite, or exit with what kept them from being collected."""
    collector = _Collector()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        arguments = ["--collect-only", "-qq", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
        outcome = pytest.main([*arguments, str(ROOT / "tests")], plugins=[collector])
    if outcome not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"{printed.getvalue()}\ncollecting the tests failed")
    return collector.items


def gather(items: Iterable[pytest.Item]) -> dict[str, Evidence]:
    """The evidence for every known requirement, in their order."""
    evidence = {id_: Evidence() for id_ in REQUIREMENTS}
    for item in items:
        for id_ in shown_by(item):
            evidence[id_].add(item)
    return evidence


def render(evidence: Mapping[str, Evidence]) -> str:
    """The page as Markdown; the same evidence always gives the same text."""
    missing = [id_ for id_, found in evidence.items() if not found.count]
    shown = len(evidence) - len(missing)
    parts = [
        INTRODUCTION,
        f"{shown} of {len(evidence)} requirements are shown.\n",
        f"**Missing:** {', '.join(missing) or 'none'}\n",
        "| | requirement | tests | stores |\n| --- | --- | --: | --- |\n"
        + "".join(_row(id_, found) for id_, found in evidence.items()),
        "## Tests\n",
        *(_section(id_, found) for id_, found in evidence.items() if found.count),
    ]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    page = render(gather(collect()))
    if "--check" not in arguments:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, "utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text("utf-8") == page:
        return 0
    print(f"{PAGE.relative_to(ROOT)} is out of date: run make conformance", file=sys.stderr)
    return 1


def _row(id_: str, found: Evidence) -> str:
    link = f"[{id_}](#{id_.lower()})" if found.count else id_
    return f"| {link} | {REQUIREMENTS[id_]} | {found.count or 'missing'} | {found.where} |\n"


def _section(id_: str, found: Evidence) -> str:
    lines = [
        f"* `{file}`: {', '.join(f'`{name}`' for name in sorted(names))}\n"
        for file, names in sorted(found.tests.items())
    ]
    return f"### {id_}\n\n{REQUIREMENTS[id_]}.\n\n{''.join(lines)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
