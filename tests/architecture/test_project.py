"""The project's own files agree with each other."""

from __future__ import annotations

import re
import tomllib

import pytest

import dev
from tests import conformance_table
from tests.architecture import tree
from tests.requirements import REQUIREMENTS, complaint, shown_by, stores_of

PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text("utf-8"))
NAME = re.compile(r"[A-Za-z0-9._-]+")
PIN = re.compile(r"[a-z0-9-]+==[\w.!+]+( ; [^@/]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
EXTRA = re.compile(r"holdfast[\w-]*\[[a-z,]+\]|MissingExtraError\(\"\w+\"")
"""How pages and messages name an extra."""


def test_every_direct_requirement_is_pinned_for_development() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(entry for extra in extras for entry in extra)]
    wanted += _members("dev", "interop")
    names = {match[0].lower() for entry in wanted if (match := NAME.match(entry))}

    pinned = {line.partition("==")[0] for line in _constraints()}

    assert set() == names - pinned - {PROJECT["project"]["name"]}


def test_extras_that_pages_and_messages_name_exist() -> None:
    name, extras = PROJECT["project"]["name"], PROJECT["project"]["optional-dependencies"]
    pages = [*tree.ROOT.glob("*.md"), *tree.ROOT.glob("docs/*.md"), *tree.PACKAGE.rglob("*.py")]
    found = {match for page in pages for match in EXTRA.findall(page.read_text("utf-8"))}

    called = {match.partition("[")[0] for match in found if "[" in match}
    used = {part for match in found for part in re.findall(r"[a-z]+", re.split(r"[\[(]", match)[1])}

    assert {name} == called
    assert {"postgres", "redis", "server", "webhooks", "crypto"} <= used <= extras.keys()


def test_contributing_describes_every_folder_of_the_library() -> None:
    page = (tree.ROOT / "CONTRIBUTING.md").read_text("utf-8")
    folders = {path.parent.name for path in tree.PACKAGE.glob("*/__init__.py")}

    described = set(re.findall(r"^      (\w+)/ ", page, re.MULTILINE))

    assert folders == described


def test_constraints_hold_versions_and_nothing_else() -> None:
    assert [] == [line for line in _constraints() if not PIN.fullmatch(line)]


@pytest.mark.parametrize("name", dev.FUZZ)
def test_pins_have_hashes_and_the_versions_of_the_constraints(name: str) -> None:
    text = (tree.ROOT / "pins" / f"{name}.txt").read_text("utf-8")
    entries = [entry.split(" \\\n    ") for entry in re.split(r"\n(?=\S)", text.strip())]
    versions = {line.partition(" ")[0] for line in _constraints()}
    build = {"hatchling", "editables", "pathspec", "trove-classifiers", "tomlkit"}

    assert [] == [pin for pin, *_ in entries if not PIN.fullmatch(pin)]
    assert [] == [pin for pin, *hashes in entries if not hashes]
    assert all(HASH.fullmatch(each) for _, *hashes in entries for each in hashes)
    pinned = {pin.partition(" ")[0] for pin, *_ in entries}
    assert [] == [pin for pin in pinned - versions if pin.partition("==")[0] not in build]


def test_every_direct_requirement_has_a_hash() -> None:
    texts = [(tree.ROOT / "pins" / f"{name}.txt").read_text("utf-8") for name in dev.FUZZ]
    pinned = set(re.findall(r"^([a-z0-9-]+)==", "\n".join(texts), re.MULTILINE))

    assert {line.partition("==")[0] for line in _constraints()} <= pinned


def test_requirements_are_numbered_without_gaps() -> None:
    numbers: dict[str, list[int]] = {}
    for id_ in REQUIREMENTS:
        letter, _, number = id_.partition("-")
        numbers.setdefault(letter, []).append(int(number))

    assert {"M": 13, "S": 15, "A": 20, "L": 6, "B": 9, "R": 2, "E": 3, "O": 5} == {
        k: len(v) for k, v in numbers.items()
    }
    assert all(list(range(1, len(found) + 1)) == found for found in numbers.values())


def test_marks_name_known_requirements_and_stores(request: pytest.FixtureRequest) -> None:
    item = request.node

    assert complaint(item) is None
    assert complaint(_marked(item, "M-99")) == f"{item.nodeid}: no such requirement: M-99"
    assert (
        complaint(_marked(item, "M-7", stores=["mysql"])) == f"{item.nodeid}: no such store: mysql"
    )


def test_conformance_page_folds_parameters_and_names_what_is_missing(
    request: pytest.FixtureRequest,
) -> None:
    item = _marked(request.node, "M-7", stores=["redis", "memory"])

    evidence = conformance_table.gather([item, item])
    page = conformance_table.render(evidence)

    assert {"M-7"} == shown_by(item)
    assert {"memory", "redis"} == stores_of(item)
    assert 1 == evidence["M-7"].count
    assert "M-6, M-8" in page
    assert "| 1 | memory, redis |" in page
    assert f"`{item.originalname}`" in page


def _marked(item: pytest.Function, *ids: str, stores: list[str] | None = None) -> pytest.Function:
    """A copy of a test that is not part of the run, with a mark of its own."""
    copy = pytest.Function.from_parent(item.parent, name=item.name, callobj=item.function)
    copy.add_marker(pytest.mark.req(*ids, **({"stores": stores} if stores else {})))
    return copy


def _members(*groups: str) -> list[str]:
    """The members of dependency groups, with those of the groups that they include."""
    found = []
    for group in groups:
        for entry in PROJECT["dependency-groups"][group]:
            found += [entry] if isinstance(entry, str) else _members(entry["include-group"])
    return found


def _constraints() -> list[str]:
    return (tree.ROOT / "constraints.txt").read_text("utf-8").splitlines()
