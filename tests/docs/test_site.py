"""The documentation site: it builds without a warning, and nothing is missing from it."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from scripts.build_docs import BrokenSiteError, build, navigation, rewritten
from scripts.generate_api import MODULES, TARGET, reference
from tests.architecture import tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_site_builds_without_a_warning_and_can_be_searched(tmp_path: Path) -> None:
    build(tmp_path / "site")

    assert "holdfast" in (tmp_path / "site" / "index.html").read_text("utf-8")
    index = json.loads((tmp_path / "site" / "search.json").read_text("utf-8"))
    assert len(index["items"]) > 100
    assert "](tutorial/)" in (tmp_path / "site" / "llms.txt").read_text("utf-8")


@pytest.mark.slow
def test_link_that_leads_nowhere_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[b](missing.md)\n", "utf-8")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "a"\n', "utf-8")
    monkeypatch.setattr("scripts.build_docs.ROOT", tmp_path)

    with pytest.raises(BrokenSiteError, match=r"missing\.md"):
        build(tmp_path / "site")


def test_navigation_names_every_page_once() -> None:
    pages = {page.name for page in (tree.ROOT / "docs").glob("*.md")}

    named = Counter(navigation())

    assert pages == set(named)
    assert {1} == set(named.values())


def test_fences_become_those_of_the_site() -> None:
    text = "```python file=shop.py\n```\n```text output\n```\n```python\n"

    assert '```python title="shop.py"\n```\n```text\n```\n```python\n' == rewritten(text)


def test_reference_covers_every_integration() -> None:
    inner = {"__init__", "command_line", "embedding"}
    folder = tree.PACKAGE / "contrib"
    modules = {path.stem for path in folder.iterdir() if path.suffix in ("", ".py")}

    missing = {name for name in modules - inner if f"holdfast.contrib.{name}" not in MODULES}
    assert set() == missing - {"__pycache__"}


def test_navigation_has_the_sections_that_readers_look_for() -> None:
    text = (tree.ROOT / "zensical.toml").read_text("utf-8")
    nav = tomllib.loads(text)["project"]["nav"]

    sections = [name for entry in nav for name in entry]
    assert ["Start", "Guides", "Stores", "HTTP service", "Reference", "Internals"] == sections[1:]


def test_page_that_no_other_page_links_to_does_not_exist() -> None:
    pages = {page.name: page.read_text("utf-8") for page in (tree.ROOT / "docs").glob("*.md")}

    linked = {
        target
        for name, text in pages.items()
        for target in re.findall(r"\]\(([\w-]+\.md)[)#]", text)
        if target != name
    }
    assert {"index.md"} == pages.keys() - linked


def test_reference_of_the_python_names_is_up_to_date() -> None:
    assert reference() == TARGET.read_text("utf-8"), "run python -m scripts.generate_api"
